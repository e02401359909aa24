-- Protects accounts of a Kestrel pool from each other, and from whoever guesses passwords.
-- For Prosody 0.12 and later, with the network backend "epoll". Loaded for all hosts.
--
-- 1. What an account sends is read at a bounded rate, over all of its sessions. Above it the server
--    reads later, and TCP makes the sender wait: nothing is lost, and nobody is disconnected.
-- 2. What waits to be sent to an account is bounded. The session whose client does not read is
--    closed; messages to it come back to the pool's manager, which then drops the rest.
--    Prosody alone keeps them without a bound, and each new one restarts the timeout for writing.
-- 3. Password attempts: each one that fails takes a token of its account and address. Without a
--    token an attempt waits in line, first come, first served, instead of being refused, so that the
--    owner of the account gets in, too. Other addresses and other accounts do not notice.
-- 4. Clients reach the pool's component and the server itself, and nobody else: no user's stanza gets
--    to a worker or to another user. Presence reaches `pool@` alone; subscriptions are refused, for
--    Prosody keeps them on disk, in the rosters of both sides, without a bound.
--
-- Options (workers: of hosts that are named in kestrel_guard_worker_hosts; users: all others):
--   kestrel_guard_worker_hosts            a set
--   kestrel_guard_user_stanzas_per_second, kestrel_guard_worker_stanzas_per_second
--   kestrel_guard_user_bytes_per_second, kestrel_guard_worker_bytes_per_second
--   kestrel_guard_unsent_bytes            of one account
--   kestrel_guard_free_guesses            that fail, of one account and address
--   kestrel_guard_guesses_per_second      after that
module:set_global();

local async = require "util.async";
local base64 = require "util.encodings".base64;
local filters = require "util.filters";
local jid_bare = require "util.jid".bare;
local jid_split = require "util.jid".split;
local monotonic = require "util.time".monotonic;
local st = require "util.stanza";
local timer = require "util.timer";

local worker_hosts = module:get_option_set("kestrel_guard_worker_hosts", {});
local unsent_limit = module:get_option_number("kestrel_guard_unsent_bytes", 8 * 1024 * 1024);
local free_guesses = module:get_option_number("kestrel_guard_free_guesses", 20);
local guesses_per_second = module:get_option_number("kestrel_guard_guesses_per_second", 4);

local BURST_SECONDS = 1;
local LONGEST_PAUSE_SECONDS = 5;
-- Longer than that nobody waits in line: clients give up after 30 seconds.
local LONGEST_LINE_SECONDS = 20;
local REFUSAL_SECONDS = 1;
local SWEEP_SECONDS = 30;
local MOST_LINES = 10000;

local rates = {
	user = {
		stanzas = module:get_option_number("kestrel_guard_user_stanzas_per_second", 200);
		bytes = module:get_option_number("kestrel_guard_user_bytes_per_second", 4e6);
	};
	worker = {
		stanzas = module:get_option_number("kestrel_guard_worker_stanzas_per_second", 1000);
		bytes = module:get_option_number("kestrel_guard_worker_bytes_per_second", 16e6);
	};
};

local m_paused = module:measure("paused", "counter");
local m_unread = module:measure("unread", "counter");
local m_failed = module:measure("failed_guesses", "counter");
local m_delayed = module:measure("delayed_guesses", "counter");

-- A bucket that may be in debt: `take` returns for how many seconds it is empty.
local function new_bucket(rate, burst)
	local balance, at = burst, monotonic();
	local bucket = {};
	local function fill(now)
		balance = balance + (now - at) * rate;
		if balance > burst then balance = burst; end
		at = now;
	end
	function bucket.take(amount, now)
		fill(now or monotonic());
		balance = balance - amount;
		return balance < 0 and -balance / rate or 0;
	end
	function bucket.balance()
		fill(monotonic());
		return balance;
	end
	function bucket.full()
		fill(monotonic());
		return balance >= burst;
	end
	return bucket;
end

-- Accounts with sessions, by bare address: { stanzas, bytes, unpaid, sent, written, forgotten } --

local accounts = {};

local function account_of(session)
	local known = session.kestrel_account; -- looked up once, for this is asked with each stanza
	if known and not known.forgotten then return known; end
	if session.type ~= "c2s" or not session.username then return nil; end
	local name = session.username .. "@" .. session.host;
	local account = accounts[name];
	if not account then
		local rate = rates[worker_hosts:contains(session.host) and "worker" or "user"];
		account = {
			stanzas = new_bucket(rate.stanzas, rate.stanzas * BURST_SECONDS);
			bytes = new_bucket(rate.bytes, rate.bytes * BURST_SECONDS);
			unpaid = 0; -- stanzas that were read and not taken from the bucket yet
			sent = {};
			written = 0;
		};
		accounts[name] = account;
	end
	session.kestrel_account = account;
	return account;
end

local function pause(session, seconds)
	local conn = session.conn;
	if conn and conn.pausefor then
		m_paused(1);
		conn:pausefor(math.min(seconds, LONGEST_PAUSE_SECONDS));
	end
end

-- Counted here and paid for with the next bytes: looking at the clock costs more than the rest.
local function stanza_in(stanza, session)
	local account = account_of(session);
	if account then account.unpaid = account.unpaid + 1; end
	return stanza;
end

local function bytes_in(bytes, session)
	local account = account_of(session);
	if account then
		local now = monotonic();
		local seconds = account.bytes.take(#bytes, now);
		if account.unpaid > 0 then
			local for_stanzas = account.stanzas.take(account.unpaid, now);
			account.unpaid = 0;
			if for_stanzas > seconds then seconds = for_stanzas; end
		end
		if seconds > 0 then pause(session, seconds); end
	end
	return bytes;
end

local function unsent_bytes(session)
	local buffer = session.conn and session.conn.writebuffer;
	if type(buffer) == "string" then return #buffer; end
	local sum = 0;
	for _, piece in ipairs(buffer or {}) do sum = sum + #piece; end
	return sum;
end

-- The session with most to send is closed: its client does not read.
local function close_fullest(account)
	local most, fullest, together = -1, nil, 0;
	for session in pairs(account.sent) do
		local unsent = unsent_bytes(session);
		together = together + unsent;
		if unsent > most then most, fullest = unsent, session; end
	end
	account.written = together;
	if together <= unsent_limit or not fullest then return; end
	m_unread(1);
	module:log("warn", "%s does not read what it is sent: closed with %d bytes to send",
		fullest.full_jid or "a client", most);
	account.sent[fullest] = nil;
	account.written = together - most;
	fullest.kestrel_unread = true;
	timer.add_task(0, function ()
		local conn = fullest.conn;
		if conn then
			conn:on("disconnect", "it does not read what it is sent");
			conn:destroy(); -- not close(), which waits until all is sent
		end
	end);
end

local function bytes_out(bytes, session)
	if session.kestrel_unread then return nil; end
	local account = account_of(session);
	if account then
		account.sent[session] = true;
		-- Counted as if nothing were read, and looked up only when that is too much.
		account.written = account.written + #bytes;
		if account.written > unsent_limit then
			close_fullest(account);
			if session.kestrel_unread then return nil; end
		end
	end
	return bytes;
end

function module.load()
	filters.add_filter_hook(function (session)
		if session.type:match("^c2s") then
			filters.add_filter(session, "stanzas/in", stanza_in, 900);
			filters.add_filter(session, "bytes/in", bytes_in, 900);
			filters.add_filter(session, "bytes/out", bytes_out, 900);
		end
	end);
end

-- Password attempts, by account and address --

local lines, line_count = {}, 0;
local shared; -- for all beyond MOST_LINES

local function new_line()
	return { tokens = new_bucket(guesses_per_second, free_guesses), next_at = 0 };
end

local function line_of(name, ip)
	local key = name .. "\0" .. ip;
	local line = lines[key];
	if not line then
		if line_count >= MOST_LINES then
			shared = shared or new_line();
			return shared;
		end
		line = new_line();
		lines[key] = line;
		line_count = line_count + 1;
	end
	return line;
end

-- The name in the first message of PLAIN (RFC 4616) or of SCRAM (RFC 5802).
local function name_in(stanza)
	local text = stanza[1] and base64.decode(stanza[1]) or "";
	local name = text:match("^[^%z]*%z([^%z]+)%z") or text:match("^[^,]*,[^,]*,n=([^,]+)") or "";
	return name:lower():sub(1, 200);
end

local function sleep(seconds)
	local wait, done = async.waiter();
	timer.add_task(seconds, done);
	wait();
end

-- Waits for a turn; tells whether there is one.
local function turn(line)
	local now = monotonic();
	if line.next_at <= now and line.tokens.balance() >= 1 then return true; end
	m_delayed(1);
	local at = math.max(line.next_at, now) + 1 / guesses_per_second;
	if at - now > LONGEST_LINE_SECONDS then
		sleep(REFUSAL_SECONDS);
		return false;
	end
	line.next_at = at;
	sleep(at - now);
	return true;
end

-- Whom a client reaches --

local function may_reach(session, stanza)
	local to = stanza.attr.to;
	local node, host, resource = jid_split(to);
	local target = prosody.hosts[host];
	local is_pool = target and target.type == "component";
	if stanza.name == "presence" then
		local kind = stanza.attr.type;
		-- The server tells each address of directed presence when the session ends: one is enough.
		return is_pool and node == "pool" and not resource and (not kind or kind == "unavailable");
	end
	return is_pool or (target and not node) or jid_bare(to) == jid_bare(session.full_jid);
end

local function on_the_way(event)
	local session, stanza = event.origin, event.stanza;
	if session.type ~= "c2s" then return; end
	local to = stanza.attr.to;
	if not to then
		-- It would go to each session of the account: to thousands, each time.
		if stanza.name == "presence" then return true; end
		return;
	end
	if to == session.kestrel_reaches and stanza.name == "message" then return; end
	if may_reach(session, stanza) then
		if stanza.name == "message" then session.kestrel_reaches = to; end -- most go there again
		return;
	end
	if stanza.attr.type ~= "error" and stanza.attr.type ~= "result" then
		session.send(st.error_reply(stanza, "cancel", "service-unavailable"));
	end
	return true;
end

function module.add_host(module)
	for _, kind in ipairs { "message", "presence", "iq" } do
		for _, to in ipairs { "full", "bare", "host" } do
			module:hook("pre-" .. kind .. "/" .. to, on_the_way, 1000);
		end
	end

	module:hook("stanza/urn:ietf:params:xml:ns:xmpp-sasl:auth", function (event)
		local session, stanza = event.origin, event.stanza;
		if session.type ~= "c2s_unauthed" then return; end
		local line = line_of(name_in(stanza) .. "@" .. module.host, session.ip or "");
		session.kestrel_line = line;
		local ours = turn(line);
		if session.destroyed or not session.conn then return true; end
		if not ours then
			session.send(st.stanza("failure", { xmlns = "urn:ietf:params:xml:ns:xmpp-sasl" })
				:tag("temporary-auth-failure"));
			session:close();
			return true;
		end
	end, 100);

	module:hook("authentication-failure", function (event)
		local session = event.session;
		if session.kestrel_line then
			m_failed(1);
			session.kestrel_line.tokens.take(1);
		end
	end);

	module:hook("resource-unbind", function (event)
		local session = event.session;
		local account = accounts[session.username .. "@" .. session.host];
		if account then account.sent[session] = nil; end
	end);
end

timer.add_task(SWEEP_SECONDS, function ()
	local now = monotonic();
	for key, line in pairs(lines) do
		if line.next_at <= now and line.tokens.full() then
			lines[key] = nil;
			line_count = line_count - 1;
		end
	end
	for name, account in pairs(accounts) do
		for session in pairs(account.sent) do
			if not session.conn then account.sent[session] = nil; end
		end
		if not next(account.sent) and account.stanzas.full() and account.bytes.full() then
			account.forgotten = true;
			accounts[name] = nil;
		end
	end
	return SWEEP_SECONDS;
end);

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
-- 4. Clients reach the pool's component, the server itself and, one by one, sessions of their own
--    account: no user's stanza gets to a worker or to another user, to the disk, or to many sessions.
-- 5. Presence. Workers have none but what they send to `pool@`: theirs would go to each session of an
--    account, to thousands. Users are online, for their own sessions alone, and may subscribe to the
--    pool: to its domain, `pool@`, `jobs@` and `job-N@`. What that makes the server keep is bounded. What
--    it makes the server send, read and write is paid for like what an account sends, and refused to
--    an account that owes more than pauses collect. The pool is told of each subscriber who comes and
--    goes, of all who are there when its manager comes back; and they are told when it goes.
-- 6. Who has logged in, and whose account is deleted before the session begins, gets none: Prosody
--    looks for the account when it sees the password, and minutes may lie between.
-- 7. The file share is a component as well. It is asked by IQ, by the pool's own accounts, and gets no presence.
--
-- Options (workers: of hosts that are named in kestrel_guard_worker_hosts; users: all others):
--   kestrel_guard_worker_hosts            a set
--   kestrel_guard_user_stanzas_per_second, kestrel_guard_worker_stanzas_per_second
--   kestrel_guard_user_bytes_per_second, kestrel_guard_worker_bytes_per_second
--   kestrel_guard_unsent_bytes            of one account
--   kestrel_guard_free_guesses            that fail, of one account and address
--   kestrel_guard_guesses_per_second      after that
--   kestrel_guard_roster_items            of one account
--   kestrel_guard_present_sessions        of one account
module:set_global();

local async = require "util.async";
local base64 = require "util.encodings".base64;
local filters = require "util.filters";
local jid_bare = require "util.jid".bare;
local jid_prep = require "util.jid".prep;
local jid_split = require "util.jid".split;
local monotonic = require "util.time".monotonic;
local st = require "util.stanza";
local timer = require "util.timer";
local user_exists = require "core.usermanager".user_exists;

local new_bucket = module:require "kestrel_bucket";

local worker_hosts = module:get_option_set("kestrel_guard_worker_hosts", {});
local unsent_limit = module:get_option_number("kestrel_guard_unsent_bytes", 8 * 1024 * 1024);
local free_guesses = module:get_option_number("kestrel_guard_free_guesses", 20);
local guesses_per_second = module:get_option_number("kestrel_guard_guesses_per_second", 4);
local most_roster_items = module:get_option_number("kestrel_guard_roster_items", 100);
local most_present_sessions = module:get_option_number("kestrel_guard_present_sessions", 20);

local BURST_SECONDS = 1;
local LONGEST_PAUSE_SECONDS = 5;
-- Each session reads on after its pause, whatever its account owes: what costs much is refused then.
local MOST_OWED_SECONDS = 10;
local OWES_TOO_MUCH = "This account asks too much at once";
-- Longer than that nobody waits in line: clients give up after 30 seconds.
local LONGEST_LINE_SECONDS = 20;
local REFUSAL_SECONDS = 1;
local SWEEP_SECONDS = 30;
local MOST_LINES = 10000;
local LONGEST_ADDRESS_BYTES = 300;
local LONGEST_NAME_BYTES = 200; -- of an item of a roster, and of each of its groups
local MOST_GROUPS = 10;
local LONGEST_PRESENCE_BYTES = 4000;
local LONGEST_KEPT_MESSAGE_BYTES = 20000;
-- What is done with a roster is done with all of it: so much counts as a stanza, and a write as more.
local ROSTER_CHANGE_STANZAS = 10;
local ROSTER_BYTES_OF_A_STANZA = 2000;
local ROSTER_ITEM_BYTES = 100; -- besides its name and groups

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

-- What waits is a string or, until Prosody 0.12, a list of strings; since 13 a buffer that knows its length.
local function unsent_bytes(session)
	local buffer = session.conn and session.conn.writebuffer or "";
	if type(buffer) == "string" then return #buffer; end
	if buffer.length then return buffer:length(); end
	local sum = 0;
	for _, piece in ipairs(buffer) do sum = sum + #piece; end
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

local function is_subscribed(item)
	return item and (item.subscription == "to" or item.subscription == "both");
end
local function is_asked_for(item)
	return item and (item.ask or is_subscribed(item));
end

local function component_of(host)
	return prosody.hosts[host] and prosody.hosts[host].type == "component";
end

-- The component whose manager is a program of its own.
local function is_pool(host)
	return component_of(host) and not prosody.hosts[host].modules.http_file_share;
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

-- Presence of users --

-- Addresses of a pool that a user may subscribe to.
local function is_contact(node, resource)
	if resource then return false; end
	return not node or node == "pool" or node == "jobs" or (#node <= 24 and node:match("^job%-%d+$") ~= nil);
end

local function count(items)
	local n = 0;
	for key in pairs(items or {}) do
		if key then n = n + 1; end -- a roster has its metadata at `false`
	end
	return n;
end

local function sessions_of(session)
	return (prosody.bare_sessions[session.username .. "@" .. session.host] or { sessions = {} }).sessions;
end

-- Has an account pay for stanzas, and for one to each of its sessions; false if it owes too much already.
local function charge(session, stanzas)
	local account = account_of(session);
	if not account then return true; end
	if account.stanzas.owed_seconds(account.unpaid) > MOST_OWED_SECONDS then return false; end
	account.unpaid = account.unpaid + stanzas + count(sessions_of(session));
	return true;
end

-- What it costs to read a roster or to write it.
local function stanzas_of(roster)
	local bytes = 0;
	for jid, item in pairs(roster or {}) do
		if jid then
			bytes = bytes + ROSTER_ITEM_BYTES + #(item.name or "");
			for group in pairs(item.groups or {}) do bytes = bytes + #group; end
		end
	end
	return bytes / ROSTER_BYTES_OF_A_STANZA;
end

-- When this session goes, the server tells these addresses (RFC 6121, 4.6.3).
local function tell_at_the_end(session, jid)
	session.directed = session.directed or {};
	session.directed[jid] = true;
end

-- Or each session of the account, and each job it looked at, would be kept as long as this session is.
local function tell_no_more(sessions, jid)
	for _, session in pairs(sessions) do
		if session.directed then session.directed[jid] = nil; end
	end
end

local function refuse(session, stanza, condition, text)
	if stanza.attr.type ~= "error" and stanza.attr.type ~= "result" then
		session.send(st.error_reply(stanza, text == OWES_TOO_MUCH and "wait" or "cancel", condition, text));
	end
	return true;
end

-- Presence to nobody in particular: to the account's own sessions.
local function own_presence(session, stanza)
	if worker_hosts:contains(session.host) then return true; end
	-- Who comes or goes makes the server write to all that it knows; who goes has to be let go.
	local leaves = stanza.attr.type == "unavailable" and session.presence;
	local comes = not stanza.attr.type and not session.presence;
	if not charge(session, (comes or leaves) and count(session.roster) or 0) and not leaves then
		return refuse(session, stanza, "resource-constraint", OWES_TOO_MUCH);
	end
	if #tostring(stanza) > LONGEST_PRESENCE_BYTES then
		return refuse(session, stanza, "not-acceptable", "This presence is too large");
	end
	if not comes then return; end
	local present = 0;
	for _, other in pairs(sessions_of(session)) do
		if other.presence then present = present + 1; end
	end
	if present >= most_present_sessions then
		return refuse(session, stanza, "resource-constraint", "Too many sessions of this account are available");
	end
	for jid in pairs(session.roster or {}) do
		if jid then
			local node, host, resource = jid_split(jid);
			if component_of(host) and is_contact(node, resource) then tell_at_the_end(session, jid); end
		end
	end
end

-- Of what a client sends, and of what the server sends for it: probes, and presence to all it knows.
local function may_send_presence(session, stanza, node, host, resource)
	local to, kind = stanza.attr.to, stanza.attr.type;
	local is_worker = worker_hosts:contains(session.host);
	if not is_worker and host == session.host and node == session.username then
		return prosody.full_sessions[to] and (not kind or kind == "unavailable");
	end
	if not is_pool(host) or not is_contact(node, resource) then return false; end
	-- The server keeps each address of directed presence until the session ends: one is enough.
	if not kind then return node == "pool"; end
	if kind == "unavailable" then return node == "pool" or not is_worker; end
	if is_worker then return false; end
	local roster = session.roster;
	local item = roster and roster[to];
	if kind == "probe" then return is_asked_for(item); end
	if not roster or (kind ~= "subscribe" and kind ~= "unsubscribe") then return false; end
	if not charge(session, ROSTER_CHANGE_STANZAS + stanzas_of(roster)) then
		return false, "resource-constraint", OWES_TOO_MUCH;
	end
	if kind == "unsubscribe" then tell_no_more(sessions_of(session), to); end
	if kind == "subscribe" and not item and count(roster) >= most_roster_items then
		return false, "resource-constraint", "The roster of this account is full";
	end
	return true;
end

local function roster_asked(event)
	local session, stanza = event.origin, event.stanza;
	if session.type ~= "c2s" then return; end
	local changes = stanza.attr.type == "set";
	if not charge(session, stanzas_of(session.roster) + (changes and ROSTER_CHANGE_STANZAS or 0)) then
		return refuse(session, stanza, "resource-constraint", OWES_TOO_MUCH);
	end
	local item = changes and stanza.tags[1]:get_child("item");
	if not item or item.attr.subscription == "remove" then return; end
	local jid = item.attr.jid or "";
	local groups, fits = 0, #jid <= LONGEST_ADDRESS_BYTES and #(item.attr.name or "") <= LONGEST_NAME_BYTES;
	for group in item:childtags("group") do
		groups = groups + 1;
		fits = fits and #(group:get_text() or "") <= LONGEST_NAME_BYTES;
	end
	if not fits or groups > MOST_GROUPS then
		return refuse(session, stanza, "not-acceptable", "This item of a roster is too large");
	end
	if not session.roster[jid_prep(jid) or ""] and count(session.roster) >= most_roster_items then
		return refuse(session, stanza, "resource-constraint", "The roster of this account is full");
	end
end

-- Calls with each session that has presence, and each address of a component that it is subscribed to.
local function each_subscriber(of_host, act)
	for _, session in pairs(prosody.full_sessions) do
		if session.presence and not worker_hosts:contains(session.host) then
			for jid, item in pairs(session.roster or {}) do
				if jid and is_subscribed(item) and select(2, jid_split(jid)) == of_host then act(session, jid); end
			end
		end
	end
end

-- As the server does for a session that becomes available (RFC 6121, 4.2.2).
local function probe(session, jid)
	tell_at_the_end(session, jid);
	prosody.core_post_stanza(session, st.presence({ from = session.full_jid, to = jid, type = "probe" }), true);
end

local function on_answer(event)
	local stanza = event.stanza;
	local user, from = prosody.bare_sessions[stanza.attr.to], jid_bare(stanza.attr.from);
	if user and stanza.attr.type == "unsubscribed" then tell_no_more(user.sessions, from); end
	-- It is still only asked for: Prosody notes the answer after this.
	if stanza.attr.type ~= "subscribed" or not user or not is_asked_for(user.roster[from]) then return; end
	for _, session in pairs(user.sessions) do
		if session.presence then probe(session, from); end
	end
end

-- Messages for who is away --

-- What programs say goes to the session that asked, and to no other.
local function to_a_session_that_is_gone(event)
	local session, stanza = event.origin, event.stanza;
	if prosody.full_sessions[stanza.attr.to] or not stanza:get_child("json", "urn:xmpp:json:0") then return; end
	return refuse(session, stanza, "service-unavailable");
end

local function keep_message(event)
	if #tostring(event.stanza) > LONGEST_KEPT_MESSAGE_BYTES then return false; end
end

-- Whom a client reaches --

local function may_reach(session, stanza)
	local to = stanza.attr.to;
	local node, host, resource = jid_split(to);
	if stanza.name == "presence" then
		return may_send_presence(session, stanza, node, host, resource);
	end
	if component_of(host) or (prosody.hosts[host] and not node) then return true; end
	if jid_bare(to) ~= jid_bare(session.full_jid) then return false; end
	return stanza.name ~= "message" or prosody.full_sessions[to] ~= nil;
end

local function on_the_way(event)
	local session, stanza = event.origin, event.stanza;
	if session.type ~= "c2s" then return; end
	local to = stanza.attr.to;
	if not to then
		if stanza.name == "presence" then return own_presence(session, stanza); end
		if stanza.name == "message" then return refuse(session, stanza, "service-unavailable"); end
		return;
	end
	if to == session.kestrel_reaches and stanza.name == "message" then return; end
	local may, condition, text = may_reach(session, stanza);
	if may then
		-- Most go there again. One's own session may be gone by then.
		if stanza.name == "message" and not prosody.full_sessions[to] then session.kestrel_reaches = to; end
		return;
	end
	return refuse(session, stanza, condition or "service-unavailable", text);
end

function module.add_host(module)
	if module:get_host_type() == "component" then
		module:hook("component-authenticated", function () each_subscriber(module.host, probe); end);
		module:hook("component-disconnected", function (event)
			if event.session.type ~= "component" then return; end
			each_subscriber(module.host, function (session, jid)
				session.send(st.presence({ from = jid, to = session.full_jid, type = "unavailable" }));
			end);
		end);
		return;
	end
	for _, kind in ipairs { "message", "presence", "iq" } do
		for _, to in ipairs { "full", "bare", "host" } do
			module:hook("pre-" .. kind .. "/" .. to, on_the_way, 1000);
		end
	end
	if not worker_hosts:contains(module.host) then
		module:hook("iq/self/jabber:iq:roster:query", roster_asked, 1000);
		module:hook("presence/bare", on_answer, 10);
		module:hook("message/full", to_a_session_that_is_gone, 10);
		module:hook("message/offline/handle", keep_message, 10);
	end

	module:hook("pre-resource-bind", function (event)
		if user_exists(event.session.username, module.host) then return; end
		event.error = { type = "auth", condition = "not-authorized", text = "Account deleted" };
		return false;
	end);

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
		if session.full_jid then tell_no_more(sessions_of(session), session.full_jid); end
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

-- Streams between the server of a Kestrel pool and other servers: who may open one, what it reaches,
-- and how much it brings. For Prosody 0.12 and later, with the network backend "epoll". Loaded for the
-- pool's component, with "s2s" and "s2s_auth_certs", and for no other host.
--
-- 1. Users elsewhere: the domains that are named, with a certificate that the system trusts. Over such
--    a stream each address of the pool is reached but that of its flock.
-- 2. The flock: any domain whose certificate an authority of the flock has signed, or, where the domain
--    has a pin, whose certificate is the one that is pinned. Over such a stream `flock@` and `pool@` of one pool
--    reach `flock@` and `pool@` of the other, and nothing else. A domain may be both; neither makes it the other.
-- 3. What a domain sends is read at a bounded rate, over all of its streams, and late above it. Its streams
--    are so many at most, the oldest gives way. So many domains a minute are new at most.
-- 4. Where the server of a domain listens can be said by a file of its name, with ADDRESS:PORT in it, which is
--    read for each new stream; DNS is asked if there is none.
-- What is refused is counted, and said in the log once an hour for each domain and reason.
--
-- Options:
--   kestrel_streams_federated_domains      a set; of users elsewhere
--   kestrel_streams_flock_authorities      a file of certificates (PEM)
--   kestrel_streams_flock_pins             { ["DOMAIN"] = "SHA-256 of its certificate, in hex" }
--   kestrel_streams_address_directories    a list; the first that has a file of the domain counts
--   kestrel_streams_bytes_per_second, kestrel_streams_stanzas_per_second    of one domain
--   kestrel_streams_of_one_domain          how many it may have open
--   kestrel_streams_new_domains_per_minute
module:set_global();

local basic = require "net.resolvers.basic";
local filters = require "util.filters";
local jid_prep = require "util.jid".prep;
local jid_split = require "util.jid".split;
local load_certificate = require "ssl".loadcertificate;
local manual = require "net.resolvers.manual";
local monotonic = require "util.time".monotonic;
local service = require "net.resolvers.service";
local st = require "util.stanza";
local timer = require "util.timer";
local unpack = table.unpack or unpack; -- luacheck: ignore 113
local verify_identity = require "util.x509".verify_identity;

local new_bucket = module:require "kestrel_bucket";

local bytes_per_second = module:get_option_number("kestrel_streams_bytes_per_second", 2e6);
local stanzas_per_second = module:get_option_number("kestrel_streams_stanzas_per_second", 2000);
local most_streams = module:get_option_number("kestrel_streams_of_one_domain", 8);
local new_domains_per_minute = module:get_option_number("kestrel_streams_new_domains_per_minute", 300);

local BURST_SECONDS = 1;
local LONGEST_PAUSE_SECONDS = 5;
local SWEEP_SECONDS = 30;
local SAID_FOR_SECONDS = 3600;
local MOST_SAID = 1000;

local m_paused = module:measure("paused", "counter");
local m_refused = module:measure("refused", "counter");

-- Whom the pool trusts, read again when the configuration is --

local federated_domains, authorities, pins;

local function read_authorities(file)
	local found = {};
	local opened = file and io.open(file);
	if not opened then
		if file then module:log("error", "the authorities of the flock cannot be read: %s", file); end
		return found;
	end
	for pem in opened:read("*a"):gmatch("%-%-%-%-%-BEGIN CERTIFICATE.-END CERTIFICATE%-%-%-%-%-") do
		local certificate, problem = load_certificate(pem .. "\n");
		if certificate then
			table.insert(found, certificate);
		else
			module:log("error", "%s holds what is no certificate: %s", file, problem);
		end
	end
	opened:close();
	return found;
end

local function read_trust()
	federated_domains = module:get_option_set("kestrel_streams_federated_domains", {});
	authorities = read_authorities(module:get_option_string("kestrel_streams_flock_authorities"));
	pins = {};
	for domain, pin in pairs(module:get_option("kestrel_streams_flock_pins", {})) do
		pins[domain:lower()] = pin:lower():gsub("[^%x]", "");
	end
end

-- Who wants a certificate first may keep his name until there is TLS (RFC 6120, 4.7.1).
local function may_be_in_flock(domain)
	if #authorities > 0 then return true; end
	if domain then return pins[domain] ~= nil; end
	return next(pins) ~= nil;
end

-- Tells whether a certificate proves that a domain is of the flock; if not, why.
local function proves(cert, domain, chain)
	if pins[domain] then
		if cert:digest("sha256"):lower() == pins[domain] then return true; end
		return false, "is not the one that is pinned";
	end
	local problem = "is not signed by an authority of the flock";
	for _, authority in ipairs(authorities) do
		local issued, why = authority:issued(cert, unpack(chain, 2));
		if issued then
			if verify_identity(domain, "xmpp-server", cert) then return true; end
			return false, "is for another name";
		end
		-- Where several authorities say no, the one that would have signed it says why.
		if why and why:find("expired") then problem = "has expired"; end
		if why and why:find("not yet valid") then problem = "is not valid yet"; end
	end
	return false, problem;
end

-- Refusals --

local said, said_count, said_since = {}, 0, monotonic();

local function say_once(format, ...)
	m_refused(1);
	if monotonic() - said_since > SAID_FOR_SECONDS then
		said, said_count, said_since = {}, 0, monotonic();
	end
	local line = format:format(...);
	if said[line] or said_count >= MOST_SAID then return; end
	said[line], said_count = true, said_count + 1;
	module:log("warn", "%s", line);
end

local function close(session, condition, text)
	session:close({ condition = condition, text = text });
end

-- Brings the sender, an address of ours, an answer that no server gave.
local function answer(reply)
	prosody.core_route_stanza(prosody.hosts[select(2, jid_split(reply.attr.to))], reply);
end

local function bounce(stanza, text)
	if stanza.attr.type == "error" or stanza.attr.type == "result" then return; end
	answer(st.error_reply(stanza, "cancel", "not-allowed", text));
end

-- Addresses --

local function is_between_pools(node, other_node)
	return (node == "flock" or node == "pool") and (other_node == "flock" or other_node == "pool");
end

-- Whether only the flock may say that, to or from a domain. 'node' is ours.
local function is_of_flock(node, other_node, domain)
	return node == "flock" or (is_between_pools(node, other_node) and not federated_domains:contains(domain));
end

local function has_streams(host)
	return host and prosody.hosts[host] and prosody.hosts[host].modules.kestrel_streams;
end

-- A stream is opened to one of our hosts, and Prosody takes what comes over it to any of them.
local function why_not_in(stanza, session)
	local to = stanza.attr.to;
	local node, host, resource = jid_split(jid_prep(to));
	if to and not has_streams(host) then return "other servers reach the pool alone"; end
	if stanza.attr.xmlns then return nil; end -- what a stream is set up with
	local domain = session.from_host;
	if federated_domains:contains(domain) and node ~= "flock" then return nil; end
	if not session.kestrel_of_flock then return "that domain is not of the flock"; end
	local from_node, from_host = jid_split(jid_prep(stanza.attr.from));
	if from_host ~= domain then return "its sender is at another domain"; end
	if not is_between_pools(node, from_node) or (node == "pool" and resource) then
		return "pools of the flock reach flock@ and pool@ from theirs";
	end
end

-- Domains with open streams --

local domains = {}; -- { bytes, stanzas, unpaid, streams }: the latest last
local newcomers = new_bucket(new_domains_per_minute / 60, new_domains_per_minute);

local function forget_closed(domain)
	for i = #domain.streams, 1, -1 do
		if domain.streams[i].destroyed then table.remove(domain.streams, i); end
	end
end

local function on_established(event)
	local session = event.session;
	local name = session.from_host;
	local domain = domains[name];
	if not domain then
		if newcomers.balance() < 1 then
			session.kestrel_refused = true;
			say_once("refused a stream from %s: too many domains are new", name);
			timer.add_task(0, function () close(session, "resource-constraint", "Too many domains are new"); end);
			return;
		end
		newcomers.take(1);
		domain = {
			bytes = new_bucket(bytes_per_second, bytes_per_second * BURST_SECONDS);
			stanzas = new_bucket(stanzas_per_second, stanzas_per_second * BURST_SECONDS);
			unpaid = 0; -- stanzas that were read and not taken from the bucket yet
			streams = {};
		};
		domains[name] = domain;
	end
	forget_closed(domain);
	table.insert(domain.streams, session);
	session.kestrel_domain = domain;
	if #domain.streams > most_streams then
		local oldest = table.remove(domain.streams, 1);
		say_once("closed the oldest stream from %s: it has more than %d", name, most_streams);
		timer.add_task(0, function () close(oldest, "resource-constraint", "This domain has too many streams"); end);
	end
end

local function stanza_in(stanza, session)
	if session.direction ~= "incoming" then return stanza; end
	if session.kestrel_refused then return nil; end
	local domain = session.kestrel_domain;
	if domain then domain.unpaid = domain.unpaid + 1; end
	local reason = why_not_in(stanza, session);
	if not reason then return stanza; end
	local to = (stanza.attr.to or "nobody"):sub(1, 200);
	say_once("refused a stanza of %s for %s: %s", session.from_host or "a server", to, reason);
	close(session, "policy-violation", "Refused: " .. reason);
	return nil;
end

local function bytes_in(bytes, session)
	local domain = session.kestrel_domain;
	if not domain then return bytes; end
	local now = monotonic();
	local seconds = math.max(domain.bytes.take(#bytes, now), domain.stanzas.take(domain.unpaid, now));
	domain.unpaid = 0;
	if seconds > 0 and session.conn and session.conn.pausefor then
		m_paused(1);
		session.conn:pausefor(math.min(seconds, LONGEST_PAUSE_SECONDS));
	end
	return bytes;
end

-- Where servers are --

local function file_of(name)
	if not name:find("^%w[%w.-]*$") then return nil; end
	for _, directory in ipairs(module:get_option_array("kestrel_streams_address_directories", {})) do
		local opened = io.open(directory .. "/" .. name);
		if opened then return opened; end
	end
end

local ask_dns = service.new;

local function find_service(name, kind, conn_type, extra)
	local opened = kind:find("^xmpps?%-server$") and file_of(name);
	if not opened then return ask_dns(name, kind, conn_type, extra); end
	local address, port = (opened:read("*l") or ""):match("^%[?([%x.:]+)%]?:(%d+)$");
	opened:close();
	-- TLS from the first byte is a service of its own, which is not there.
	if kind ~= "xmpp-server" or not address then return manual.new({}, conn_type, extra); end
	return basic.new(address, tonumber(port), conn_type, extra);
end

function module.load()
	read_trust();
	service.new = find_service;
	filters.add_filter_hook(function (session)
		if not session.type:match("^s2s") then return; end
		filters.add_filter(session, "stanzas/in", stanza_in, 900);
		filters.add_filter(session, "bytes/in", bytes_in, 900);
	end);
end

function module.unload()
	service.new = ask_dns;
end

module:hook("config-reloaded", read_trust);

-- Whether a stanza that waits for a stream is for the flock alone; its sender is told so.
local function refused(session, reply)
	if not reply then return false; end -- it is an answer itself
	if not is_of_flock(jid_split(reply.attr.to), jid_split(reply.attr.from), session.to_host) then
		return false;
	end
	reply.attr.type = "error";
	reply:tag("error", { type = "cancel" })
		:tag("not-allowed", { xmlns = "urn:ietf:params:xml:ns:xmpp-stanzas" }):up():up();
	answer(reply);
	return true;
end

-- Drops what waits for a stream and is for the flock alone. Until Prosody 0.12 a list waits, of what
-- is sent and of what answers it; since 13 a queue of stanzas.
local function bounce_waiting(session)
	local waiting = session.sendq;
	if not waiting then return; end
	if waiting.pop then
		for _ = 1, waiting:count() do
			local stanza = waiting:pop();
			local kind = stanza.attr.type;
			if not refused(session, kind ~= "error" and kind ~= "result" and st.reply(stanza)) then
				waiting:push(stanza);
			end
		end
		return;
	end
	local kept = {};
	for _, item in ipairs(waiting) do
		if not refused(session, item[2]) then
			table.insert(kept, item);
		end
	end
	session.sendq = kept;
end

-- After `s2s_auth_certs`, which looks at what the system trusts, and before `s2s`, which closes the rest.
module:hook("s2s-check-certificate", function (event)
	local session, domain, cert = event.session, event.host, event.cert;
	if not domain or not may_be_in_flock(domain) then return; end
	local is_proven, why = false, "is missing";
	if cert then
		local socket = session.conn:socket();
		is_proven, why = proves(cert, domain, socket.getpeerchain and socket:getpeerchain() or {});
	end
	session.kestrel_of_flock = is_proven;
	if is_proven then
		session.cert_chain_status, session.cert_identity_status = "valid", "valid";
		return;
	end
	if federated_domains:contains(domain) then
		if session.direction == "outgoing" then bounce_waiting(session); end
		return;
	end
	say_once("refused the certificate of %s: it %s", domain, why);
	session:close({ condition = "not-authorized", text = "Your server's certificate " .. why },
		nil, "The remote server's certificate " .. why);
	return false;
end, 100);

function module.add_host(module)
	module:hook("route/remote", function (event)
		local stanza, domain = event.stanza, event.to_host;
		local node, other_node = jid_split(stanza.attr.from), jid_split(stanza.attr.to);
		if not is_of_flock(node, other_node, domain) then
			if federated_domains:contains(domain) then return; end
			bounce(stanza, "This domain is not one of those allowed");
			return true;
		end
		local stream = prosody.hosts[module.host].s2sout[domain];
		if is_between_pools(node, other_node) and may_be_in_flock(domain)
			and not (stream and stream.kestrel_of_flock == false) then
			return;
		end
		bounce(stanza, "This domain is not of the flock");
		return true;
	end, 1000);
	module:hook("s2s-stream-features", function (event)
		local session = event.origin;
		local domain = session.from_host;
		if session.direction ~= "incoming" or federated_domains:contains(domain) then return; end
		-- Whether it is of the flock is known with its certificate.
		if session.kestrel_of_flock or (not session.secure and may_be_in_flock(domain)) then return; end
		say_once("refused a stream from %s: that domain is not allowed", domain or "a server without a name");
		close(session, "policy-violation", "This domain is not one of those allowed");
		return true;
	end, 1000);
	module:hook("s2sin-established", on_established);
end

timer.add_task(SWEEP_SECONDS, function ()
	for name, domain in pairs(domains) do
		forget_closed(domain);
		if #domain.streams == 0 and domain.bytes.full() and domain.stanzas.full() then domains[name] = nil; end
	end
	return SWEEP_SECONDS;
end);

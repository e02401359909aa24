-- Where the file share of a Kestrel pool (mod_http_file_share) notes what was uploaded, and by whom.
-- For Prosody 0.12 and later: `storage = { uploads = "kestrel_slots", upload_stats = "kestrel_slots" }`.
--
-- Prosody's own storage reads its file and all that is in it for each download of what was not
-- asked for lately, and for the first upload of each account: with 10,000 uploads everybody waits a
-- tenth of a second, each time. This one keeps them in memory as well, a few hundred bytes each.
-- It also
-- - bounds how many uploads of an account, and of all, are kept, how many bytes they are, and how long
--   their names are. An account may have a part of the whole, so that no one can fill it for all;
-- - gives back a place to which nothing was sent: Prosody counts it until it expires, days later;
-- - knows at each start how many bytes there are: Prosody counts them once a week;
-- - has what expired deleted soon after a start, if that was not done for a day: Prosody waits for the
--   next midnight (UTC), which a server that is not up at night never sees;
-- - deletes what is left of uploads that a crash cut off;
-- - reads its list up to where a power failure cut it off: Prosody reads it as a whole or not at all, and
--   nobody could upload any more.
--
-- Prosody's own quotas cannot be told that a place was given back: let them be beyond all that comes, and
-- set these instead.
--
-- Options:
--   kestrel_slots_of_all              how many uploads there may be
--   kestrel_slots_bytes_of_all        how many bytes they may have, sent or promised
--   kestrel_slots_account_percent     of both, what an account may have
--   kestrel_slots_of_account          how many it may have, if not this part
--   kestrel_slots_account_bytes_per_day    what it may ask places for in a day and does not give back
--   kestrel_slots_unused_seconds      after so long without a byte a place is given back. Prosody takes an
--                                     upload that begins within 600 s (until 0.12, 300 s), and nobody would
--                                     know of its file: it must not be less, but for tests.
local array = require "util.array";
local datamanager = require "core.storagemanager".olddm;
local envload = require "util.envload".envload;
local errors = require "util.error";
local new_id = require "util.id".long;
local lfs = require "lfs";
local monotonic = require "util.time".monotonic;
local st = require "util.stanza";

local host = module.host;
local most_of_all = module:get_option_number("kestrel_slots_of_all", 300000);
local most_bytes = module:get_option_number("kestrel_slots_bytes_of_all", math.huge);
local part = module:get_option_number("kestrel_slots_account_percent", 25) / 100;
local most_of_account = module:get_option_number("kestrel_slots_of_account", most_of_all * part);
local most_bytes_a_day = module:get_option_number("kestrel_slots_account_bytes_per_day", math.huge);
local unused_seconds = module:get_option_number("kestrel_slots_unused_seconds", 660);

local SHARE = "http_file_share";
local LOG = "kestrel_slots";
local NAMESPACE = "urn:xmpp:http:upload:0";
local LONGEST_NAME_BYTES = 200; -- of a file, and of its type
local DAY_SECONDS = 86400;
local MOST_CUTS = 10; -- so many entries at the end of the list may be damaged
local MOST_FORGOTTEN = 10000; -- more lines of the log than this are in vain before it is written anew

local slots, accounts, count, bytes;
local forgotten = 0; -- given back, and still in the log
local unsent = { first = 1, last = 0 }; -- places to which nothing was sent when we looked
local of_today = setmetatable({}, { __mode = "k" }); -- slots that count for the day of their account

local function account_of(with)
	local account = accounts[with];
	if not account then
		account = { count = 0, bytes = 0, day_bytes = 0, day = {}, first = 1, last = 0 };
		accounts[with] = account;
	end
	return account;
end

local function take_off_day(account, slot)
	if of_today[slot] then
		of_today[slot] = nil;
		account.day_bytes = account.day_bytes - slot.size;
	end
end

local function note(slot, sign)
	slots[slot.key] = sign > 0 and slot or nil;
	local account = account_of(slot.with);
	account.count, account.bytes = account.count + sign, account.bytes + sign * slot.size;
	count, bytes = count + sign, bytes + sign * slot.size;
	if sign < 0 then
		take_off_day(account, slot);
		if account.count == 0 then accounts[slot.with] = nil; end
	elseif slot.when > os.time() - DAY_SECONDS then
		of_today[slot] = true;
		account.day_bytes = account.day_bytes + slot.size;
		account.last = account.last + 1;
		account.day[account.last] = slot;
	end
end

local function bytes_of_day(account)
	local day, yesterday = account.day, os.time() - DAY_SECONDS;
	while day[account.first] and day[account.first].when <= yesterday do
		take_off_day(account, day[account.first]);
		day[account.first] = nil;
		account.first = account.first + 1;
	end
	return account.day_bytes;
end

local function path_of(slot)
	return datamanager.getpath(slot.key, host, SHARE, "bin");
end

local function is_there(path)
	return lfs.attributes(path, "mode") ~= nil;
end

local function watch(slot)
	unsent.last = unsent.last + 1;
	unsent[unsent.last] = { slot = slot, at = monotonic() + unused_seconds };
end

-- Gives back places to which nothing was sent in time. What is being sent is looked at again later.
local function give_back()
	local now = monotonic();
	while unsent.first <= unsent.last and unsent[unsent.first].at <= now do
		local slot = unsent[unsent.first].slot;
		unsent[unsent.first] = nil;
		unsent.first = unsent.first + 1;
		local path = path_of(slot);
		if slots[slot.key] == slot and not is_there(path) then
			if is_there(path .. "~") then
				watch(slot);
			else
				note(slot, -1);
				forgotten = forgotten + 1;
			end
		end
	end
end

-- Writes the log anew, with what is there and nothing else.
local function write_log(kept)
	local ok, err = datamanager.list_store(nil, host, LOG, kept);
	if ok then forgotten = 0; end
	return ok, err;
end

-- The entries of a log before its damaged end; nil if there is more damage than that.
local function entries_in(text)
	for _ = 1, MOST_CUTS do
		text = text:match("^.*%);\n") or ""; -- an entry may be followed by nothing but zeros
		local found = {};
		local chunk = envload(text, "=" .. LOG, { item = function (slot) found[#found + 1] = slot; end });
		if chunk and pcall(chunk) then return found; end
		text = text:sub(1, -2);
	end
end

local function read_log()
	local kept, err = datamanager.list_load(nil, host, LOG);
	if kept or not err then return kept or {}; end
	local path = datamanager.getpath(nil, host, LOG, "list");
	local file = io.open(path, "rb");
	if not file then return nil, err; end
	local text = file:read("*a");
	file:close();
	kept = text and entries_in(text);
	if not kept then return nil, err; end
	os.remove(path .. ".damaged");
	lfs.link(path, path .. ".damaged");
	local ok;
	ok, err = write_log(kept);
	if not ok then return nil, err; end
	module:log("error", "The end of %s cannot be read: %d uploads before it are known, later ones take room that nothing"
		.. " counts. The list as it was is %s.damaged", path, #kept, path);
	return kept;
end

local function load()
	if slots then return true; end
	local kept, err = read_log();
	if not kept then return nil, err; end
	slots, accounts, count, bytes = {}, {}, 0, 0;
	table.sort(kept, function (a, b) return a.when < b.when; end);
	for _, slot in ipairs(kept) do
		if is_there(path_of(slot)) then
			note(slot, 1);
		else -- it gets its time once more: nobody knows how the clock went on
			os.remove(path_of(slot) .. "~");
			note(slot, 1);
			watch(slot);
		end
	end
	return true;
end

local function all_slots()
	local found = array();
	for _, slot in pairs(slots) do found:push(slot); end
	return found;
end

local function request_of(slot)
	return st.stanza("request", {
		xmlns = NAMESPACE, filename = slot.name, size = ("%d"):format(slot.size), ["content-type"] = slot.type
	});
end

local function refusal(kind, condition, text)
	return nil, errors.new({ type = kind, condition = condition, text = text });
end

-- Of an error without a condition, such as a full disk, Prosody tells who asked `undefined-condition`.
local function cannot(what, err)
	return refusal("wait", "internal-server-error", "The server cannot " .. what .. ": " .. tostring(err or "see its log"));
end

local archive = { caps = { total = true, ids = true, quota = most_of_all } };

function archive:append(_, _, request, when, with) -- luacheck: ignore 212/self
	local ok, err = load();
	if not ok then return cannot("read its list of files", err); end
	local slot = {
		key = new_id(), when = when, with = with, size = tonumber(request.attr.size),
		name = request.attr.filename, type = request.attr["content-type"];
	};
	if #slot.name > LONGEST_NAME_BYTES or #(slot.type or "") > LONGEST_NAME_BYTES then
		return refusal("modify", "bad-request", "Name or type is too long");
	end
	give_back();
	local account = accounts[with] or { count = 0, bytes = 0 };
	if account.count >= most_of_account or count >= most_of_all then
		return refusal("wait", "resource-constraint", "Too many files are stored");
	elseif account.bytes + slot.size > most_bytes * part then
		return refusal("wait", "resource-constraint", "This account's part of the file share is full");
	elseif account.day and bytes_of_day(account) + slot.size > most_bytes_a_day or slot.size > most_bytes_a_day then
		return refusal("wait", "resource-constraint", "Daily quota reached");
	elseif bytes + slot.size > most_bytes then
		return refusal("wait", "resource-constraint", "The file share is full");
	end
	if forgotten > count + MOST_FORGOTTEN then
		ok, err = write_log(all_slots());
		if not ok then return cannot("write to its disk", err); end
	end
	ok, err = datamanager.list_append(nil, host, LOG, slot);
	if not ok then return cannot("write to its disk", err); end
	note(slot, 1);
	watch(slot);
	return slot.key;
end

function archive:get(_, key) -- luacheck: ignore 212/self
	local ok, err = load();
	if not ok then return nil, err; end
	local slot = slots[key];
	if not slot then return nil, "item-not-found"; end
	return request_of(slot), slot.when, slot.with;
end

local function matching(query)
	local ids = query.ids and {};
	for _, key in ipairs(query.ids or {}) do ids[key] = true; end
	local found = array();
	for key, slot in pairs(slots) do
		if (not query.with or slot.with == query.with)
			and (not query.start or slot.when >= query.start)
			and (not query["end"] or slot.when <= query["end"])
			and (not ids or ids[key]) then
			found:push(slot);
		end
	end
	return found;
end

function archive:find(_, query) -- luacheck: ignore 212/self
	local ok, err = load();
	if not ok then return nil, err; end
	local found, i = matching(query or {}), 0;
	return function ()
		i = i + 1;
		local slot = found[i];
		if slot then return slot.key, request_of(slot), slot.when, slot.with; end
	end, #found;
end

function archive:delete(_, query) -- luacheck: ignore 212/self
	local ok, err = load();
	if not ok then return nil, err; end
	local found, kept = matching(query or {}), array();
	local goes = {};
	for _, slot in ipairs(found) do goes[slot.key] = true; end
	for key, slot in pairs(slots) do
		if not goes[key] then kept:push(slot); end
	end
	ok, err = write_log(kept);
	if not ok then return nil, err; end
	for _, slot in ipairs(found) do
		note(slot, -1);
		os.remove(path_of(slot) .. "~");
	end
	return #found;
end

-- Of `upload_stats` one number is asked: how many bytes there are.
local sums = {};

function sums:get() -- luacheck: ignore 212/self
	local ok, err = load();
	if not ok then return nil, err; end
	return bytes;
end

function sums:set() -- luacheck: ignore 212/self
	return true;
end

local driver = {};
local kinds = { archive = { __index = archive }, map = { __index = sums } };

function driver:open(store, kind) -- luacheck: ignore 212/self
	local kind_of_store = kinds[kind];
	if not kind_of_store then return nil, "unsupported-store"; end
	return setmetatable({ store = store }, kind_of_store);
end

function driver:purge() -- luacheck: ignore 212/self
	return true; -- an account that is deleted leaves its files to expire
end

module:provides("storage", driver);

-- When the share deleted what had expired, as mod_cron notes it. It looks this up when the share asks it
-- for a daily task, which is after the share has opened its store.
local PRUNING = SHARE .. "/remove_expired_files";
local last_runs = module:open_store("cron", "map");
if not last_runs:get(nil, PRUNING) then last_runs:set(nil, PRUNING, 0); end

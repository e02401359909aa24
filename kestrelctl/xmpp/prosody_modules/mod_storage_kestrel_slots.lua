-- Where the file share of a Kestrel pool (mod_http_file_share) notes what was uploaded, and by whom.
-- For Prosody 0.12 and later: `storage = { uploads = "kestrel_slots", upload_stats = "kestrel_slots" }`.
--
-- Prosody's own storage reads its file and all that is in it for each download of what was not
-- asked for lately, and for the first upload of each account: with 10,000 uploads everybody waits a
-- tenth of a second, each time. This one keeps them in memory as well, a few hundred bytes each.
-- It also
-- - bounds how many uploads of an account, and of all, are kept, and how long their names are;
-- - knows at each start how many bytes they are: Prosody counts them once a week;
-- - has what expired deleted soon after a start, if that was not done for a day: Prosody waits for the
--   next midnight (UTC), which a server that is not up at night never sees;
-- - deletes what is left of uploads that a crash cut off.
--
-- Options:
--   kestrel_slots_of_account, kestrel_slots_of_all    how many
local array = require "util.array";
local datamanager = require "core.storagemanager".olddm;
local errors = require "util.error";
local new_id = require "util.id".long;
local st = require "util.stanza";

local host = module.host;
local most_of_account = module:get_option_number("kestrel_slots_of_account", 100000);
local most_of_all = module:get_option_number("kestrel_slots_of_all", 300000);

local SHARE = "http_file_share";
local LOG = "kestrel_slots";
local NAMESPACE = "urn:xmpp:http:upload:0";
local LONGEST_NAME_BYTES = 200; -- of a file, and of its type

local slots, of_account, count, bytes;

local function note(slot, sign)
	slots[slot.key] = sign > 0 and slot or nil;
	of_account[slot.with] = (of_account[slot.with] or 0) + sign;
	if of_account[slot.with] == 0 then of_account[slot.with] = nil; end
	count, bytes = count + sign, bytes + sign * slot.size;
end

local function load()
	if slots then return true; end
	local kept, err = datamanager.list_load(nil, host, LOG);
	if not kept and err then return nil, err; end
	slots, of_account, count, bytes = {}, {}, 0, 0;
	for _, slot in ipairs(kept or {}) do note(slot, 1); end
	return true;
end

local function request_of(slot)
	return st.stanza("request", {
		xmlns = NAMESPACE, filename = slot.name, size = ("%d"):format(slot.size), ["content-type"] = slot.type
	});
end

local function refusal(kind, condition, text)
	return nil, errors.new({ type = kind, condition = condition, text = text });
end

local archive = { caps = { total = true, ids = true, quota = most_of_all } };

function archive:append(_, _, request, when, with) -- luacheck: ignore 212/self
	local ok, err = load();
	if not ok then return nil, err; end
	local slot = {
		key = new_id(), when = when, with = with, size = tonumber(request.attr.size),
		name = request.attr.filename, type = request.attr["content-type"];
	};
	if #slot.name > LONGEST_NAME_BYTES or #(slot.type or "") > LONGEST_NAME_BYTES then
		return refusal("modify", "bad-request", "Name or type is too long");
	end
	if (of_account[with] or 0) >= most_of_account or count >= most_of_all then
		return refusal("wait", "resource-constraint", "Too many files are stored");
	end
	ok, err = datamanager.list_append(nil, host, LOG, slot);
	if not ok then return nil, err; end
	note(slot, 1);
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
	ok, err = datamanager.list_store(nil, host, LOG, kept);
	if not ok then return nil, err; end
	for _, slot in ipairs(found) do
		note(slot, -1);
		os.remove(datamanager.getpath(slot.key, host, SHARE, "bin") .. "~");
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

-- Makes Prosody's file share (mod_http_file_share) as fast as its machine.
-- For Prosody 0.12 and later, with the network backend "epoll". Loaded for the share's component.
--
-- By default 4096 bytes are read at once, and the next read waits a millisecond: 4 MB/s. The option
-- `network_default_read_size` would have the server read as much of what clients say in one go, in which
-- others have to wait. So only who speaks HTTP is heard in longer pieces.
--
-- Option:
--   kestrel_share_read_bytes    at once; http_max_buffer_size must be larger
local listener = require "net.http.server".listener;

local read_bytes = module:get_option_number("kestrel_share_read_bytes", 256 * 1024);

local on_connect = listener.onconnect;

function listener.onconnect(conn)
	conn:set_mode(read_bytes);
	return on_connect(conn);
end

function module.unload()
	listener.onconnect = on_connect;
end

-- Makes Prosody's file share (mod_http_file_share) as fast as its machine, and heard on a port of its own.
-- For Prosody 0.12 and later, with the network backend "epoll". Loaded for the share's component.
--
-- 1. By default 4096 bytes are read at once, and the next read waits a millisecond: 4 MB/s. The option
--    `network_default_read_size` would have the server read as much of what clients say in one go, in which
--    others have to wait. So only who speaks HTTP is heard in longer pieces.
-- 2. `https_interfaces` says where all is heard that speaks HTTPS: the share has interfaces of its own.
--
-- Options:
--   kestrel_share_read_bytes    at once; http_max_buffer_size must be larger
--   kestrel_share_ports, kestrel_share_interfaces    with TLS; the addresses that clients are told are
--                                                    those of http_external_url
--   kestrel_share_host          of the component: the name in these addresses, for which TLS has a certificate
module:set_global();

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

module:provides("net", {
	name = "kestrel_share";
	listener = listener;
	default_port = 5443;
	encryption = "ssl";
});

function module.add_host() end

-- A bucket that may be in debt: `take` returns for how many seconds it is empty.
local monotonic = require "util.time".monotonic;

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
	function bucket.owed_seconds(more)
		fill(monotonic());
		return (more - balance) / rate;
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

return new_bucket;

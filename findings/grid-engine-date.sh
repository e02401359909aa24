#!/bin/sh
# Grid Engine 8.1.9 of Debian 12 (8.1.9+dfsg-10+b1), in a folder made by mmdebstrap. As root.
#
# One would guess: `qstat` tells a job that waits for its date (`qsub -a`) from one that waits for a
# machine, as it does with a job that its user holds (`hqw`) and as Slurm does (`BeginTime`).
# Seen: both are `qw` and pending, in the table and in XML, where no date stands either. Only
# `qstat -s ha` lists those that wait for a date, and there their state is `qw` as well.
# Where no queue takes a job yet, `qsub` says "Unable to run job", "submitted" and "Exiting.", and
# its exit status is 1; the job is in the queue all the same.
# So: who counts waiting jobs asks twice, and takes those of `-s ha` out; who submits looks for the
# job before another try.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
version=8.1.9+dfsg-10+b1
# The server has to find its own name, and the name of the address that asks it.
printf '127.0.0.1 head localhost\n' >"$folder/hosts"
cat >"$folder/try" <<'TRY'
export SGE_QMASTER_PORT=16444 SGE_EXECD_PORT=16445
. /var/lib/gridengine/default/common/settings.sh
useradd --uid 2000 ada
su -s /bin/sh sgeadmin -c sge_qmaster
for _ in $(seq 100); do
    if su -s /bin/sh sgeadmin -c 'qconf -as head' >/dev/null 2>&1; then break; fi
    sleep 0.2
done
cat >/jobs <<'JOBS'
cd /tmp
qsub -b y -a 203801010000 -N later true 2>&1; echo "status $?"
for job in now "held -h"; do qsub -b y -N $job true >/dev/null 2>&1; done
table() { echo "$*:" $(qstat "$@" | awk 'NR > 2 { print $3, $5 }'); }
table
table -s p
table -s ha
qstat -xml | grep -c 2038
JOBS
su -s /bin/sh ada -c 'sh /jobs'
TRY
cat >"$folder/all" <<'ALL'
hostname head
cd "$1"
mmdebstrap --quiet --variant=apt --essential-hook='cp hosts "$1/etc/hosts"' \
    --customize-hook='cp hosts "$1/etc/hosts"; cp try "$1/try"' \
    --include="gridengine-master=$2,gridengine-client=$2" bookworm debian >said 2>&1
exec unshare --pid --fork --kill-child --mount-proc=debian/proc chroot debian sh /try
ALL
unshare --uts sh -eu "$folder/all" "$folder" "$version" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
Unable to run job: warning: ada's job is not allowed to run in any queue
Your job 1 ("later") has been submitted
Exiting.
status 1
: later qw now qw held hqw
-s p: later qw now qw held hqw
-s ha: later qw
0
SEEN

#!/bin/sh
# Slurm 22.05.8 of Debian 12 (22.05.8-4+deb12u3), in a folder made by mmdebstrap. As root.
#
# One would guess: a job that is to begin after job 4711 is refused where there is no job 4711, and
# so is the cancelling of 4711.
# Seen: the job is accepted, and its condition counts as fulfilled: it begins at once, whether it
# waits for 4711 to end well (`afterok`) or to fail (`afternotok`). So a mistyped number is no
# condition at all. `scancel 4711` says nothing and exits with 0; `squeue -j 4711` fails, but in a
# list of two numbers the unknown one is left out without a word.
# So: who writes numbers of jobs by hand looks at `squeue -o %E` afterwards.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
version=22.05.8-4+deb12u3
mmdebstrap --quiet --variant=apt \
    --include="slurmctld=$version,slurm-client=$version,munge" bookworm "$folder/debian"
mkdir -p "$folder/debian/pool/state"
cat >"$folder/debian/pool/slurm.conf" <<'CONF'
ClusterName=pool
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmctldPidFile=/pool/slurmctld.pid
StateSaveLocation=/pool/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
NodeName=n[1-2] State=CLOUD
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
cat >"$folder/debian/pool/try" <<'TRY'
export SLURM_CONF=/pool/slurm.conf
mkdir -p /run/munge && chown munge: /run/munge
runuser -u munge -- munged --force 2>/dev/null
slurmctld -D >/pool/said 2>&1 &
for _ in $(seq 100); do if squeue -h >/dev/null 2>&1; then break; fi; sleep 0.2; done
sbatch --dependency=afterok:4711 --wrap true
sbatch --dependency=afternotok:4711 --wrap true
for _ in $(seq 100); do
    if [ "$(squeue -h -t CONFIGURING | wc -l)" = 2 ]; then break; fi
    sleep 0.2
done
squeue --noheader --sort=i --format='%i %T depends on %E'
scancel 4711 && echo "scancel: $?"
squeue --noheader --jobs=4711 --format=%i 2>&1 || echo "one: $?"
squeue --noheader --jobs=1,4711 --format=%i && echo "two: $?"
TRY
# No node is there: jobs that may begin are given one that is to be started, and stay so.
unshare --pid --fork --kill-child --mount-proc="$folder/debian/proc" \
    chroot "$folder/debian" sh /pool/try | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
Submitted batch job 1
Submitted batch job 2
1 CONFIGURING depends on (null)
2 CONFIGURING depends on (null)
scancel: 0
slurm_load_jobs error: Invalid job id specified
one: 1
1
two: 0
SEEN

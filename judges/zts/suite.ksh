
# Ours, put behind the suite's library for Platter.

# Tunables are module parameters and there is no module: they are kept in a folder and nothing acts on them.
function set_tunable_impl
{
	typeset name=$1 value=$2
	eval "typeset tunable=\$$name"
	[[ $tunable == UNSUPPORTED ]] && log_unsupported "Tunable '$name' is unsupported on $UNAME"
	[[ -z $value ]] && return 1
	echo "NOTE: tunable $name set to $value, which nothing acts on"
	echo "$value" > $ZTS_LANE/tunables/$name
}

function get_tunable_impl
{
	typeset name=$1 check_only=$3
	eval "typeset tunable=\$$name"
	if [[ -z $tunable || $tunable == UNSUPPORTED ]]; then
		[[ -z $check_only ]] && log_unsupported "Tunable '$name' is unsupported on $UNAME"
		return 1
	fi
	[[ -n $check_only ]] && return 0
	[[ -e $ZTS_LANE/tunables/$name ]] && { cat $ZTS_LANE/tunables/$name; return 0; }
	case $name in
	TXG_TIMEOUT) echo 5 ;;
	MULTIHOST_INTERVAL) echo 1000 ;;
	MULTIHOST_IMPORT_INTERVALS) echo 20 ;;
	MULTIHOST_FAIL_INTERVALS) echo 10 ;;
	DEADMAN_*_MS) echo 600000 ;;
	SPA_ASIZE_INFLATION) echo 24 ;;
	VDEV_MIN_MS_COUNT) echo 16 ;;
	MIN_METASLABS_TO_FLUSH | ADMIN_SNAPSHOT | COMPRESSED_ARC_ENABLED) echo 1 ;;
	ASYNC_BLOCK_MAX_BLOCKS) echo 18446744073709551615 ;;
	ZEVENT_LEN_MAX) echo 512 ;;
	ZEVENT_RETAIN_MAX) echo 2000 ;;
	RESILVER_MIN_TIME_MS | SCRUB_MIN_TIME_MS) echo 3000 ;;
	MAX_RECORDSIZE) echo 16777216 ;;
	VDEV_FILE_*ASHIFT) echo 9 ;;
	*) echo 0 ;;
	esac
}

# What Platter says it does not have yet does not end a test: its other steps are of interest. The lane reads the note
# and calls the result "part" instead of "pass".
function log_pos
{
	typeset errors=$ZTS_LANE/notes/stderr.${.sh.pid}.$RANDOM
	"$@" 2>$errors
	typeset status=$?
	REFUSAL=
	if (( status != 0 )); then
		REFUSAL=$(grep -m1 -E "$REFUSALS" $errors)
		cat $errors >&2
		_printerror "$@" "exited $status"
	elif grep -qEi "internal error|assertion failed|panicked" $errors; then
		cat $errors >&2
		_printerror "$@" "internal error or assertion failure" "exited $status"
		status=1
	else
		_printsuccess "$@"
	fi
	rm -f $errors
	return $status
}

REFUSALS='( yet|not supported by platter|Linux has no zones|about NFSv4|keeps its own list|cannot be made, only)'

function passed_over
{
	[[ -n $REFUSAL ]] || return 1
	_printline "NOTE: PASSED OVER: $* :: $REFUSAL"
}

function log_must
{
	log_pos "$@" || passed_over "$@" || log_fail
}

# A file system on a volume: mount(8) would look for a loop device among all of the machine's.
function mount
{
	typeset word device
	for word; do
		[[ $word == /dev/zvol/* ]] || continue
		for device in /dev/loop*([0-9]); do
			[[ -e /sys/block/${device#/dev/}/loop/backing_file ]] && continue
			command mount -o loop=$device "$@"
			return
		done
	done
	command mount "$@"
}

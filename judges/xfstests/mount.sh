#!/bin/bash
# What mount(8) runs for the type fuse.zfs while xfstests run: DATASET DIRECTORY [-o OPTIONS]. The data set gets that
# mount point and is mounted; one that is mounted elsewhere is shown there too.
export PATH=/mnt/xfstests/bin:/usr/sbin:/sbin:/usr/bin:/bin PLATTER_HOME=/mnt/xfstests/home
dataset=$1 directory=$2
shift 2
options=
while [ $# -gt 0 ]; do
    case $1 in
        -o) options+=,$2; shift ;;
        -o*) options+=,${1#-o} ;;
        -t | -N) shift ;;
    esac
    shift
done
remount= zfs_options= kernel_options= times=
IFS=, read -ra list <<<"$options"
for option in "${list[@]}"; do
    case $option in
        remount) remount=1 ;;
        ro | rw) zfs_options+=,$option kernel_options+=,$option ;;
        atime | noatime | relatime | norelatime | strictatime) zfs_options+=,$option times=1 ;;
        dev | nodev | suid | nosuid | exec | noexec) zfs_options+=,$option kernel_options+=,$option ;;
        xattr | noxattr | async | nomand) zfs_options+=,$option ;;
        '' | defaults | diratime | nodiratime | lazytime | nolazytime | acl | user_xattr | nouser | context=*) ;;
        user_id=* | group_id=* | default_permissions | allow_other | max_read=*) ;;
        *) echo "mount: $directory: unknown option $option" >&2; exit 32 ;;
    esac
done
zfs_options=${zfs_options#,}
if [ -n "$remount" ] && [ -n "$times" ]; then exec zfs mount -o "remount,$zfs_options" "$dataset"; fi
if [ -n "$remount" ]; then exec mount -i -o "remount$kernel_options" "$directory"; fi
[ -d "$directory" ] || { echo "mount: $directory: mount point does not exist." >&2; exit 32; }
now=$(awk -v dataset="$dataset" '$1 == dataset && $3 == "fuse.zfs" { print $2; exit }' /proc/self/mounts)
if [ "$now" = "$directory" ]; then echo "mount: $directory: $dataset already mounted." >&2; exit 32; fi
if [ -n "$now" ]; then exec mount --bind "$now" "$directory"; fi
if [ "$(zfs get -Hp -o value mountpoint "$dataset")" != "$directory" ]; then
    zfs set -u mountpoint="$directory" "$dataset" || exit 32
fi
zfs mount ${zfs_options:+-o "$zfs_options"} "$dataset" || exit 32

"""What is run on a host to look at a file and to put one there.

Nothing is needed but a POSIX shell and the tools that come with one; paths and modes are arguments
of the script, contents its input, so no value is ever read as code. Each script takes
``DEST NAME`` first: in a directory the file gets that name, if there is one.
"""

from __future__ import annotations

_FIND = r"""
dest=$1 name=$2 where=here
fail() { printf '%s\n' "$1" >&2; exit 1; }
case $dest in '~/'*) dest=${HOME:?}/${dest#??} ;; esac
if [ -d "$dest" ] || [ "${dest%/}" != "$dest" ]; then
  [ -n "$name" ] || fail "is a directory; name the file in it"
  dest=${dest%/}/$name where=inside
fi
[ ! -d "$dest" ] || fail "is a directory"
[ ! -e "$dest" ] || [ -f "$dest" ] || fail "is no ordinary file"
"""

LOOK = (
    _FIND
    + r"""
size=$3 shown=$4 kind=file content=other
takes_files() {
  folder=${dest%/*}
  while [ -n "$folder" ] && [ ! -e "$folder" ]; do
    case $folder in */*) folder=${folder%/*} ;; *) folder=. ;; esac
  done
  [ -d "${folder:=/}" ] || fail "$folder is no directory"
  [ -w "$folder" ] || fail "no permission to write in $folder"
  case $(stat -f -c %T "$folder" 2>/dev/null) in
    proc | sysfs | cgroup*) fail "no file can be made in $folder" ;;
  esac
}
[ ! -L "$dest" ] || kind=link
if [ ! -e "$dest" ]; then
  [ "$shown" -lt 0 ] || takes_files
  [ $kind = file ] && echo "$where absent" || echo "$where dangling"
  exit 0
fi
set -f
set -- $(ls -dlnL "$dest" 2>/dev/null) - - - - -
if [ ! -r "$dest" ]; then
  content=unreadable
elif [ "$5" = "$size" ] || [ "$5" = - ]; then
  if command -v cmp >/dev/null 2>&1; then
    cmp -s - "$dest" && content=same
  elif [ "$(cksum)" = "$(cksum <"$dest")" ]; then
    content=same
  fi
fi
[ "$shown" -lt 0 ] || [ "$content" = same ] || takes_files
printf '%s\n' "$where $kind $content $1 $3:$4 $5"
if [ "$content" = other ] && [ "$5" != - ] && [ "$5" -le "$shown" ]; then cat "$dest"; fi
"""
)
"""``DEST NAME SIZE SHOWN``, the wanted contents as input. Says ``WHERE absent``, ``WHERE dangling``
of a link that leads nowhere, or ``WHERE KIND CONTENT LETTERS OWNER SIZE`` and, if they are others
and not longer than ``SHOWN``, the present contents. What ``ls`` would know is ``-`` where there is
none. With ``SHOWN`` it is for a plan, and fails where no file could be put; else whoever puts it
there will say so. That ``/proc`` takes none only ``stat`` knows, where it can tell: root may write
there, it seems."""

PUT = (
    _FIND
    + r"""
size=$3 mode=$4 owner=$5 temporary=
folder=${dest%/*}
[ -n "$folder" ] || folder=/
[ -d "$folder" ] || mkdir -p "$folder" || exit 1
[ -w "$folder" ] || fail "no permission to write in $folder"
trap '[ -z "$temporary" ] || rm -f "$temporary"' EXIT
trap 'exit 1' HUP INT TERM
temporary=$folder/.tenure-$6
before=$(umask)
umask 077
set -C
cat >"$temporary" || exit 1
umask "$before"
set -- $(cksum <"$temporary")
[ "$2" = "$size" ] || fail "only $2 of $size bytes arrived"
if [ -n "$owner" ]; then
  chown "$owner" "$temporary" 2>/dev/null || chgrp "${owner#*:}" "$temporary" 2>/dev/null
fi
chmod "${mode:-+rw}" "$temporary" && mv -f "$temporary" "$dest" || exit 1
temporary=
"""
)
"""``DEST NAME SIZE MODE OWNER TOKEN``, the contents as input; mode and owner may be empty.

Written beside its place under a name nobody can guess, closed to others, and moved over when it is
complete: who looks sees the old file or the new one, also if the input is cut off. Being ended
removes the temporary file; only a KILL leaves it. It is not forced to the disk: no tool for that is
everywhere."""

SET_MODE = _FIND + 'chmod "$3" "$dest"\n'
"""``DEST NAME MODE``."""

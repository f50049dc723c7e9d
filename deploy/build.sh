#!/bin/sh
# Builds the binary and shows how far it is: GO=go deploy/build.sh TARGET PROFILE. The profile is that of go build -pgo.
target=$1 profile=$2 begin=$(date +%s)
# The compiler's processes are short: collecting their garbage costs a third of a build with empty caches.
export GOGC=off GOMEMLIMIT=500MiB

modules=0 packages=0 total=0
if [ -t 1 ]; then before='\r' after=; else before= after='\n'; fi

progress() {
	of=
	[ $total -eq 0 ] || of=" of $total"
	printf "$before  %d modules downloaded, %d%s packages compiled$after" $modules $packages "$of"
}

{
	# Until the modules are there, the processors can compile the standard library. (With a profile it is another one.)
	[ "$profile" != off ] || $GO build -v -pgo=off net/http 2>&1 &
	$GO list -deps -f 'package {{.ImportPath}}' ./cmd/shoal 2>&1
	wait
	$GO build -v -pgo="$profile" -ldflags '-s -w' -o "$target" ./cmd/shoal 2>&1
	echo "exit $?"
} | while IFS= read -r line; do
	case $line in
	"exit "*)
		if [ $((modules + packages)) -gt 0 ]; then
			progress
			[ -n "$after" ] || echo
		fi
		[ "$line" != "exit 0" ] || echo "built in $(($(date +%s) - begin)) s"
		exit "${line#exit }"
		;;
	"package "*) total=$((total + 1)) ;;
	"go: downloading "*)
		modules=$((modules + 1))
		# Off a terminal a line now and then is enough.
		if [ -z "$after" ] || [ $((modules % 30)) -eq 0 ]; then progress; fi
		;;
	*[\ :]*) [ -n "$after" ] || printf '\r\033[K'; echo "$line" ;; # an error
	*)
		packages=$((packages + 1))
		if [ -z "$after" ] || [ $((packages % 100)) -eq 0 ]; then progress; fi
		;;
	esac
done

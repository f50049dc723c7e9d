# Reads what `go build -v` prints, and at its end "exit CODE SECONDS": shows how many packages are compiled rather than
# the name of each, and ends with that code.
function show(done) {
	if (terminal) printf "\r  %d modules downloaded, %d of %d packages compiled%s", modules, packages, total, done ? "\n" : ""
	else if (done || packages % 100 == 0) printf "  %d of %d packages compiled\n", packages, total
	fflush()
}
/^exit [0-9]+ [0-9]+$/ {
	if (packages + modules > 0) show(1)
	if ($2 == 0) printf "built in %d s\n", $3
	exit $2
}
/^go: downloading / { modules++; if (terminal) show(0); next }
/^[^ :]+$/ { packages++; show(0); next }
{ print }

package perfcmd

import "strings"

// hidden replaces secrets.
const hidden = "***"

// withoutSecrets returns the arguments of a command for its reports, without
// the values of headers, which may be keys and tokens.
func withoutSecrets(args []string) []string {
	list := make([]string, 0, len(args))
	next := false // the value of a header follows
	for _, arg := range args {
		switch {
		case next:
			arg, next = maskHeader(arg), false
		case arg == "-H" || isHeaderFlag(arg):
			next = true
		case strings.HasPrefix(arg, "-H"):
			arg = "-H" + maskHeader(arg[2:])
		case strings.Contains(arg, "="):
			if flag, value, _ := strings.Cut(arg, "="); isHeaderFlag(flag) {
				arg = flag + "=" + maskHeader(value)
			}
		}
		list = append(list, arg)
	}
	return list
}

// isHeaderFlag recognises --header and its abbreviations.
func isHeaderFlag(flag string) bool {
	return len(flag) > len("--he") && strings.HasPrefix("--header", flag)
}

func maskHeader(line string) string {
	name, _, ok := strings.Cut(strings.TrimPrefix(line, "="), ":")
	if !ok {
		return hidden
	}
	return name + ":" + hidden
}

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"shoal/internal/sched"
)

// limiter returns what --rate-limit asks for, nil when it is off.
func (f *serveFlags) limiter() (*sched.Limiter, error) {
	var limits sched.Limits
	for _, text := range f.rateResources {
		if err := addLimit(&limits, text); err != nil {
			return nil, err
		}
	}
	switch f.rateLimit {
	case "off":
		return nil, nil
	case "execution_count":
		return sched.NewLimiter(limits), nil
	}
	return nil, fmt.Errorf("--rate-limit is %q, want off or execution_count", f.rateLimit)
}

// addLimit reads name:count[:device].
func addLimit(limits *sched.Limits, text string) error {
	parts := strings.Split(text, ":")
	if len(parts) != 2 && len(parts) != 3 || parts[0] == "" {
		return fmt.Errorf("--rate-limit-resource is %q, want name:count[:device]", text)
	}
	count, err := strconv.Atoi(parts[1])
	if err != nil || count < 0 {
		return fmt.Errorf("--rate-limit-resource is %q: want a count of 0 or more", text)
	}
	if len(parts) == 2 {
		limits.Set(parts[0], count)
		return nil
	}
	device, err := strconv.Atoi(parts[2])
	if err != nil || device < 0 {
		return fmt.Errorf("--rate-limit-resource is %q: want a device of 0 or more", text)
	}
	limits.SetOn(parts[0], device, count)
	return nil
}

package measure

import "testing"

func TestNumbersChecksTheBytesBehindTheJSON(t *testing.T) {
	tests := []struct {
		name, body string
		good       bool
	}{
		{"two numbers", "{}\x00\x00\x00\x3f\x00\x00\xc0\x3f", true},
		{"one number", "{}\x00\x00\x00\x3f", false},
		{"three numbers", "{}\x00\x00\x00\x3f\x00\x00\xc0\x3f\x00\x00\xc0\x3f", false},
		{"not a number", "{}\x00\x00\x00\x3f\x00\x00\xc0\x7f", false},
		{"infinity", "{}\x00\x00\x00\x3f\x00\x00\x80\x7f", false},
		{"nothing", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := numbers(2)([]byte(tt.body)); (err == nil) != tt.good {
				t.Errorf("got %v, want good %v", err, tt.good)
			}
		})
	}
}

package main

import "testing"

func TestOnlyWhatIsAsInTheFileIsGivenBack(t *testing.T) {
	const program = "/opt/our programs/bourse"
	for line, want := range map[string]bool{
		"00400000-013dd000 r-xp 00000000 fe:00 123   /opt/our programs/bourse": true,
		"013dd000-02460000 r--p 00fdd000 fe:00 123   /opt/our programs/bourse": true,
		"02460000-0250a000 rw-p 02060000 fe:00 123   /opt/our programs/bourse": false,
		"7f00-7f10 r-xp 00000000 fe:00 124   /lib/libc.so":                     false,
		"c000000000-c000400000 rw-p 00000000 00:00 0":                          false,
		"nonsense": false, "": false,
	} {
		if _, _, got := readOnly(line, program); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
	giveBack() // and we go on
}

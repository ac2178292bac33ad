package broker

import (
	"os"
	"strings"
	"testing"
)

// TestEveryEndpointIsDocumented compares the table of docs/api.md with ours.
func TestEveryEndpointIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[2], " `/") {
			continue
		}
		for method := range strings.SplitSeq(cells[1], ",") {
			documented[strings.TrimSpace(method)+" "+strings.Trim(cells[2], " `")] = true
		}
	}
	_, routes, _ := compose(&Config{})
	for _, rt := range routes {
		if !documented[rt.Pattern] {
			t.Errorf("docs/api.md lacks %s", rt.Pattern)
		}
		delete(documented, rt.Pattern)
	}
	for pattern := range documented {
		t.Errorf("docs/api.md has %s, which does not exist", pattern)
	}
}

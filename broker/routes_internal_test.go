package broker

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEveryEndpointIsDocumented checks that the table in docs/api.md lists exactly the existing
// routes.
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

// notInClient contains path segments that the Go client does not use, with the reasons.
var notInClient = map[string]string{
	"schedule":       "meant for curl; the client has calls for tasks",
	"ip_assignments": "used by flyctl; there are no addresses to assign",
	"certificates":   "used by flyctl; proxies store certificates",
	"secretkeys":     "used by flyctl; there are no secret keys",
	"deploy_token":   "used by flyctl; the client can create any token",
	"openapi.json":   "meant for client generators",
	"metrics":        "is for Prometheus",
	"targets":        "is for Prometheus",
}

// TestEveryEndpointHasACall checks that package machinesapi contains the segments of every path.
// TestEachCallHasACommand in package cmd/bourse checks that every call has a command.
func TestEveryEndpointHasACall(t *testing.T) {
	files, err := filepath.Glob("../machinesapi/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var client strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			client.Write(text)
		}
	}
	unused := maps.Clone(notInClient)
	_, routes, _ := compose(&Config{})
	for _, rt := range routes {
		for word := range strings.SplitSeq(strings.TrimPrefix(rt.Pattern[strings.Index(rt.Pattern, "/")+1:], "v1/"), "/") {
			if word == "" || word[0] == '{' {
				continue
			}
			has, listed := strings.Contains(client.String(), strconv.Quote(word)), notInClient[word] != ""
			if has == listed {
				t.Errorf("%s: machinesapi has %q: %t, and notInClient: %t; want exactly one of them", rt.Pattern, word, has, listed)
			}
			delete(unused, word)
		}
	}
	for word := range unused {
		t.Errorf("notInClient has %s, which is not in any path", word)
	}
}

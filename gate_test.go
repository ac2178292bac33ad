package bourse_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestEveryListenerIsBehindTheGate checks that every listener of the program is behind admission's
// gate. Only one function in the source code may serve HTTP, and it may be called in only one
// place, with the gate.
func TestEveryListenerIsBehindTheGate(t *testing.T) {
	serving := regexp.MustCompile(`http\.Server\{|new\(http\.Server\)|var \w+ http\.Server\b|http\.Serve(TLS)?\(|http\.ListenAndServe|\bdirect\.Serve\(`)
	allowed := map[string]string{
		"fabric/direct/serve.go":              "contains that function",
		"cmd/bourse/network.go":               "calls it, with the gate",
		"bench/deploy.go":                     "is a machine",
		"worker/watch/idle_awake.go":          "listens only on Unix sockets, which web pages and other hosts cannot reach",
		"proxy/handler.go":                    "serves the users of apps",
		"examples/hello/main.go":              "is a machine",
		"examples/increment/main.go":          "is a machine",
		"test/deploy/testdata/server/main.go": "is a machine",
		"view/gossip/gossiptest/loopback.go":  "is for tests",
		"image/registrytest/registry.go":      "is for tests",
	}
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Skipf("list the files with git: %v", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(name, "_test.go") || allowed[name] != "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the file was removed, but the removal was not committed
		}
		if found := serving.Find(text); found != nil {
			t.Errorf("%s contains %s: serve HTTP only through cmd/bourse/network.go, which adds the gate", name, found)
		}
	}
	text, err := os.ReadFile("cmd/bourse/network.go")
	if err != nil || !strings.Contains(string(text), "direct.Serve(ctx, ln, gate.Wrap(h)") || len(serving.FindAll(text, -1)) != 1 {
		t.Errorf("cmd/bourse/network.go must call direct.Serve exactly once, with a handler behind the gate (read error: %v)", err)
	}
}

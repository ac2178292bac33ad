package bourse_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestEveryListenerIsBehindTheGate checks that every listener of the program is behind admission's
// gate. HTTP is served in only one place in the source code, which is called in only one place.
func TestEveryListenerIsBehindTheGate(t *testing.T) {
	serving := regexp.MustCompile(`http\.Server\{|new\(http\.Server\)|var \w+ http\.Server\b|http\.Serve(TLS)?\(|http\.ListenAndServe|\bdirect\.Serve\(`)
	allowed := map[string]string{
		"fabric/direct/serve.go":              "is that place",
		"cmd/bourse/network.go":               "is the caller, with the gate",
		"bench/deploy.go":                     "is a machine",
		"worker/watch/idle_awake.go":          "listens at files alone, which no page and no other host reaches",
		"proxy/handler.go":                    "is for the users of apps, who are strangers",
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

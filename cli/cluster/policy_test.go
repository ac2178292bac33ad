package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestPolicyShow(t *testing.T) {
	list := machinesapi.PolicyList{
		Policies: []machinesapi.Policy{
			{Name: "packed", Version: "0123456789ab", SetBy: "ann", SetAt: clitest.Now},
			{Region: "gru", Shadow: true, Name: "spread", Version: "ba9876543210", SetAt: clitest.Now},
			{Region: "mad", SetAt: clitest.Now},
		},
		Comparisons: []machinesapi.PolicyComparison{{Region: "gru", Ranking: "packed@0123456789ab", Policy: "spread@ba9876543210", Orders: 120, Differing: 7, Gain: 0.0125}},
	}
	clitest.Golden(t, "policy_show", line.Against(t, clitest.Replies(http.StatusOK, list), "policy", "show").Out)
}

// TestAnInvalidPolicyIsNotSent checks that the error names the file, and that nothing is sent.
func TestAnInvalidPolicyIsNotSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(path, []byte(`{"name": "p", "base": "tetris"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	sent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s %s", r.Method, r.URL) })
	for file, want := range map[string]string{path: path + `: policy: base "tetris": use best-fit`, path + "x": "no such file"} {
		if r := line.Against(t, sent, "policy", "set", file); r.Code != 2 || !strings.Contains(r.Err, want) {
			t.Errorf("%s: exit status %d, %q, want %q", file, r.Code, r.Err, want)
		}
	}
}

package cluster

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
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

// TestMisspelledResource checks that the command names a resource that no worker has, unless a worker did not answer.
func TestMisspelledResource(t *testing.T) {
	const text = `{"name": "p", "curves": {"resources": {"gpu.h10": {"weight": 0}, "cpu": {"weight": 0}, "gpu.*": {"weight": 0}}}}`
	path := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	facts := &bourse.Facts{Accounts: []bourse.Account{{Resource: "cpu"}, {Resource: "gpu.h100"}}}
	for _, workers := range [][]machinesapi.Worker{{{ID: "w", Facts: facts}}, {{ID: "w", Facts: facts}, {ID: "w2"}}} {
		cluster := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reply := any(machinesapi.WorkerList{Workers: workers})
			if r.Method == http.MethodPut {
				reply = machinesapi.Policy{Name: "p", Policy: []byte(text)}
			}
			_ = json.NewEncoder(w).Encode(reply)
		})
		r := line.Against(t, cluster, "policy", "set", path)
		if got, want := r.Err, `no worker has resource "gpu.h10"`; r.Code != 0 || strings.Contains(got, want) != (len(workers) == 1) || strings.Count(got, "no worker") > 1 {
			t.Errorf("%d workers: exit status %d, %q", len(workers), r.Code, got)
		}
	}
}

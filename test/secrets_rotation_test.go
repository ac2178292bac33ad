package test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/seal"
)

// The cluster's key of secrets is changed as docs/operations.md says, under servers
// that run: each start has all values at each step, whichever key sealed them, and the
// old key can go once nothing is sealed with it.
func TestTheSecretsKeyIsChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public, private := filepath.Join(dir, "secrets.pub"), filepath.Join(dir, "secrets.key")
	oldPrivate, oldPublic := generate(t)
	newPrivate, newPublic := generate(t)
	replace(t, public, oldPublic)
	replace(t, private, oldPrivate)
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--secrets-key", public)
	worker, _ := newWorker(t, "w1", "gru", "--join", broker.Addr, "--secrets-key", private)
	startAll(t, worker)
	api := client(t, broker)
	eventually(t, 20*time.Second, "both have met", func() error { return agreed(t.Context(), 2, api) })
	if _, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "vault", Org: "personal"}); err != nil {
		t.Fatal(err)
	}
	c := &vault{t: t, api: api}
	before := c.set("ONE", "first")
	c.set("TWO", "second")
	made, err := api.Create(t.Context(), "vault", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: "host", Init: bourse.Init{Exec: []string{"sh", "-c", `printf %s "$ONE-$TWO" | sha256sum; exec sleep 600`}},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	c.machine = made.ID
	c.has("first-second", 1)

	replace(t, private, newPrivate, oldPrivate)
	replace(t, public, newPublic, oldPublic)
	eventually(t, 20*time.Second, "the broker seals with the new key", func() error {
		if c.set("ONE", "first") == before {
			return fmt.Errorf("the digest is that of the old key")
		}
		return nil
	})
	c.restarted()
	c.has("first-second", 2) // each sealed with another key

	replace(t, private, newPrivate)
	eventually(t, 20*time.Second, "the worker has the new key alone", func() error {
		err := c.restart()
		switch bourse.CodeOf(err) { //nolint:exhaustive // all others are not what is waited for
		case bourse.CodeUnavailable, bourse.CodeTimeout: // the latter: it was let in before, and waits for its secrets
			if !strings.Contains(err.Error(), "second") {
				return nil
			}
		}
		return errors.Join(errors.New("a restart with a value that the old key sealed"), err)
	})
	c.set("TWO", "third")
	c.restarted()
	c.has("first-third", 1)
}

func generate(t *testing.T) (private, public []byte) {
	t.Helper()
	private, public, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

// replace writes a file of keys as an operator should: whole, or not at all.
func replace(t *testing.T, path string, lines ...[]byte) {
	t.Helper()
	var text []byte
	for _, line := range lines {
		text = append(text, line...)
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// vault is an app with secrets and the machine that prints a digest of them.
type vault struct {
	t       *testing.T
	api     *machinesapi.Client
	machine bourse.MachineID
}

// set sets a secret and returns the digest that is shown of it.
func (c *vault) set(name, value string) string {
	c.t.Helper()
	s, err := c.api.Secrets("vault").Set(c.t.Context(), name, value)
	if err != nil {
		c.t.Fatal(err)
	}
	return s.Digest
}

func (c *vault) restart() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	return c.api.Restart(ctx, "vault", c.machine, machinesapi.RestartMachine{ForceStop: true}, "")
}

func (c *vault) restarted() {
	c.t.Helper()
	eventually(c.t, 30*time.Second, "the machine starts", c.restart)
}

// has waits until the machine's program has found the secrets so many times.
func (c *vault) has(secrets string, times int) {
	c.t.Helper()
	digest := sha256.Sum256([]byte(secrets))
	eventually(c.t, 20*time.Second, "the program has "+secrets, func() error {
		var text strings.Builder
		err := c.api.Logs(c.t.Context(), "vault", c.machine, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
			text.WriteString(l.Text + "\n")
			return nil
		})
		if err == nil && strings.Count(text.String(), hex.EncodeToString(digest[:])) < times {
			err = fmt.Errorf("it printed %q", text.String())
		}
		return err
	})
}

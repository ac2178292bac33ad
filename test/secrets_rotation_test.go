package test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestRotateSecretsKeyManually rotates the cluster's secret key as described in docs/operations.md while servers are
// running. At each step, a machine must start with all of its secrets, both through a broker and by its restart policy,
// whichever key sealed the secrets. The old key can be removed once no secret is sealed with it.
func TestRotateSecretsKeyManually(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := filepath.Join(dir, "secrets.key")
	old, next := seal.Generate(), seal.Generate()
	replace(t, keys, old)
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--credentials", filepath.Dir(keys))
	worker, data := newWorker(t, "w1", "gru", "--join", broker.Addr)
	startAll(t, worker)
	api := client(t, broker)
	eventually(t, waitTimeout, "both servers know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	vaultApp, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "vault", Org: "personal"})
	if err != nil {
		t.Fatal(err)
	}
	c := &vault{t: t, api: api, end: filepath.Join(dir, "end")}
	before := c.set("ONE", "first")
	c.set("TWO", "second")
	made, err := api.Create(t.Context(), "vault", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: "host", Restart: &bourse.Restart{Policy: bourse.RestartAlways},
		Init: bourse.Init{Exec: []string{"sh", "-c", `printf %s "$ONE-$TWO" | sha256sum; until rm ` + c.end + ` 2>&-; do sleep 0.1; done; exit 1`}},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	c.machine = made.ID
	c.has("first-second", 1)

	// The new key comes second, so that nothing is sealed with it before all machines have
	// it.
	replace(t, keys, old, next)
	nextKeys, err := seal.Read(next)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the machine's worker has the app's new key", func() error {
		return errors.Join(c.restart(), contains(data, nextKeys.OfApp(vaultApp.ID)))
	})
	replace(t, keys, next, old)
	eventually(t, waitTimeout, "the broker encrypts with the new key", func() error {
		if c.set("ONE", "first") == before {
			return errors.New("the digest has not changed, so it was computed with the old key")
		}
		return nil
	})
	c.revives("first-second") // now one value is sealed with each key

	replace(t, keys, next)
	eventually(t, waitTimeout, "the broker has only the new key", func() error {
		err := c.restart()
		if bourse.CodeOf(err) == bourse.CodeFailedPrecondition && strings.Contains(err.Error(), "TWO") && !strings.Contains(err.Error(), "second") {
			return nil
		}
		return errors.Join(errors.New("the restart needs the removed key: want failed_precondition for secret TWO"), err)
	})
	c.set("TWO", "third")
	c.restarted()
	c.has("first-third", 1)
	c.revives("first-third")
}

// contains returns an error unless at least one file below a directory contains the given
// bytes.
func contains(dir string, want []byte) error {
	missing := errors.New("no file contains the bytes")
	return cmp.Or(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, want) {
				missing = nil
				return fs.SkipAll
			}
		}
		return nil // files may disappear while the worker is running
	}), missing)
}

// replace replaces a key file atomically, as the documentation instructs operators.
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

// vault is an app with secrets and a machine that prints a digest of them.
type vault struct {
	t       *testing.T
	api     *machinesapi.Client
	machine bourse.MachineID
	end     string // file that makes the program exit
}

// revives makes the program exit, and waits until the restart policy has started it again
// with the given secrets.
func (c *vault) revives(secrets string) {
	c.t.Helper()
	before, err := c.starts(secrets)
	if err == nil {
		err = os.WriteFile(c.end, nil, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.has(secrets, before+1)
}

// starts returns how many times the program was started with the given secrets.
func (c *vault) starts(secrets string) (int, error) {
	digest := sha256.Sum256([]byte(secrets))
	var text strings.Builder
	err := c.api.Logs(c.t.Context(), "vault", c.machine, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
		text.WriteString(l.Text + "\n")
		return nil
	})
	return strings.Count(text.String(), hex.EncodeToString(digest[:])), err
}

// set sets a secret, and returns the digest that the API shows for it.
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
	eventually(c.t, waitTimeout, "the machine starts", c.restart)
}

// has waits until the program was started with the given secrets the given number of times.
func (c *vault) has(secrets string, times int) {
	c.t.Helper()
	eventually(c.t, waitTimeout, "the program starts with the secrets "+secrets, func() error {
		n, err := c.starts(secrets)
		if err == nil && n < times {
			err = fmt.Errorf("the program was started with these secrets %d times, want %d", n, times)
		}
		return err
	})
}

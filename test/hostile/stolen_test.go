package hostile

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// TestStolenWorkerDecryptsOnlyItsAppsSecrets has two organizations, each with an app that has a secret and a machine on
// a separate worker. The disk of one worker contains both sealed secrets, but only the key of the secret of its own
// app. No data on the disk may open the other secret, even if the secret is presented as one of the worker's own app.
func TestStolenWorkerDecryptsOnlyItsAppsSecrets(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(keys, seal.Generate(), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0", "--credentials", filepath.Dir(keys))
	api := servertest.Client(t, broker)
	dirs, servers := map[string]string{}, []*servertest.Server{}
	for _, name := range []string{"w1", "w2"} {
		dirs[name] = filepath.Join(t.TempDir(), name)
		servers = append(servers, servertest.New(t, name, "serve", "worker", "--region", "gru", "--name", name, "--label", "host="+name,
			"--data", dirs[name], "--cpus", "4", "--memory", "4GiB", "--ephemeral", "--join", broker.Addr))
	}
	servertest.StartAll(t, servers...)
	if !servertest.Within(30*time.Second, func() bool {
		list, err := api.Workers(t.Context())
		return err == nil && len(list) == 2 && list[0].Status == machinesapi.WorkerOK && list[1].Status == machinesapi.WorkerOK
	}) {
		t.Fatal("the broker does not know its workers")
	}
	apps := map[string]bourse.AppName{"w1": "vault", "w2": "shop"}
	ids := map[bourse.AppName]string{}
	for worker, app := range apps {
		made, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: app, Org: "org-" + string(app)})
		if err != nil {
			t.Fatal(err)
		}
		ids[app] = made.ID
		if _, err := api.Secrets(app).Set(t.Context(), "PASSWORD", "hunter2 of "+string(app)); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Create(t.Context(), app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: "host", Init: bourse.Init{Exec: []string{"sleep", "600"}}, Requirements: bourse.Requirements{"host": {Label: worker}},
		}}, ""); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if !servertest.Within(30*time.Second, func() bool {
		err = servertest.Agreed(t.Context(), 3, api)
		return err == nil
	}) {
		t.Fatal(err)
	}
	for _, s := range servers {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for worker, own := range apps {
		sealed := sealedIn(t, dirs[worker], ids)
		candidates := keysIn(t, dirs[worker])
		for app, id := range ids {
			value, opened := "", false
			for _, place := range []string{id, ids[own]} { // its own app id, and the id of the worker's own app
				if text, ok := tryAll(candidates, seal.Place{App: place, Name: "PASSWORD"}, sealed[app]); ok {
					value, opened = text, true
				}
			}
			if opened != (app == own) || opened && value != "hunter2 of "+string(app) {
				t.Errorf("the data of worker %s decrypts the secret of app %s as %q (%t), but its own app is %s", worker, app, value, opened, own)
			}
		}
	}
}

// sealedIn returns each app's sealed secret PASSWORD, from the view in a worker's
// directory.
func sealedIn(t *testing.T, dir string, ids map[bourse.AppName]string) map[bourse.AppName][]byte {
	t.Helper()
	out := map[bourse.AppName][]byte{}
	walk(t, dir, func(path string, text []byte) {
		if !bytes.HasPrefix(text, []byte("SQLite format 3\x00")) {
			return
		}
		copied := filepath.Join(t.TempDir(), "view.db") // work on a copy, because SQLite changes the files that it opens
		log, err := os.ReadFile(path + "-wal")
		if err = errors.Join(err, os.WriteFile(copied, text, 0o600), os.WriteFile(copied+"-wal", log, 0o600)); err != nil {
			t.Fatal(err)
		}
		c, err := sqlite.OpenConn(copied, sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // the copy was only read
		for app, id := range ids {
			list, err := inventory.Secrets(id)(c)
			if err != nil || len(list) != 1 {
				t.Fatalf("%s has %d secrets of app %s, want 1: %v", path, len(list), app, err)
			}
			out[app] = list[0].Sealed
		}
	})
	if len(out) != len(ids) {
		t.Fatalf("%s contains no view", dir)
	}
	return out
}

var coded = regexp.MustCompile(`[A-Za-z0-9+/]{43}=`)

// keysIn returns everything in the files below a directory that could be a key, which is
// each sequence of 32 bytes, raw or in base64.
func keysIn(t *testing.T, dir string) map[[bourse.AppKeySize]byte]bool {
	t.Helper()
	out, files := map[[bourse.AppKeySize]byte]bool{}, 0
	walk(t, dir, func(_ string, text []byte) {
		files++
		for i := 0; i+bourse.AppKeySize <= len(text); i++ {
			window := [bourse.AppKeySize]byte(text[i : i+bourse.AppKeySize])
			if n := bytes.Count(window[:], []byte{0}); n < bourse.AppKeySize/2 { // skip sequences that are mostly zeros, because a key is random
				out[window] = true
			}
		}
		for _, word := range coded.FindAll(text, -1) {
			if key, err := base64.StdEncoding.DecodeString(string(word)); err == nil {
				out[[bourse.AppKeySize]byte(key)] = true
			}
		}
	})
	if files < 5 {
		t.Fatalf("only %d files were found below %s", files, dir)
	}
	return out
}

// tryAll tries to open a sealed value with each of the candidates.
func tryAll(candidates map[[bourse.AppKeySize]byte]bool, p seal.Place, sealed []byte) (string, bool) {
	for key := range candidates {
		if value, err := seal.Open(key[:], p, sealed); err == nil {
			return string(value), true
		}
	}
	return "", false
}

// walk calls read for every file below a directory.
func walk(t *testing.T, dir string, read func(path string, text []byte)) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the stolen files: %w", err)
		}
		read(path, text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

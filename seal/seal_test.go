package seal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/seal"
)

// made returns both halves of a new key, and their lines.
func made(t testing.TB) (private, public seal.Keys, lines [2]string) {
	t.Helper()
	a, b, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return read(t, a), read(t, b), [2]string{string(a), string(b)}
}

func read(t testing.TB, text []byte) seal.Keys {
	t.Helper()
	k, err := seal.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var home = seal.Place{App: "01JCANARY", Name: "PASSWORD"}

func TestABrokerSealsAndAWorkerOpens(t *testing.T) {
	worker, broker, _ := made(t)
	if broker.Opener != nil {
		t.Fatal("the public half opens")
	}
	for _, value := range []string{"", "hunter2", strings.Repeat("x", 1<<16)} {
		sealed, err := broker.Sealer.Seal(home, []byte(value))
		if err != nil || len(value) > 0 && bytes.Contains(sealed, []byte(value)) || len(sealed) != len(value)+seal.Overhead {
			t.Fatalf("seal %d bytes: %d bytes, %v", len(value), len(sealed), err)
		}
		got, err := worker.Opener.Open(home, sealed)
		if err != nil || string(got) != value {
			t.Errorf("open: %q, %v, want %q", got, err, value)
		}
	}
}

func TestWhatIsSealedOpensAtItsPlaceOnly(t *testing.T) {
	worker, broker, _ := made(t)
	sealed, err := broker.Sealer.Seal(home, []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]seal.Place{
		"another app":  {App: "01JOTHER", Name: home.Name},
		"another name": {App: home.App, Name: "LOGIN"},
		"a cut place":  {App: home.App + "\x00" + home.Name[:1], Name: home.Name[1:]},
	} {
		if got, err := worker.Opener.Open(p, sealed); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %q, %v, want invalid", what, got, err)
		}
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if got, err := worker.Opener.Open(home, bad); err == nil {
			t.Fatalf("byte %d changed: opens as %q", i, got)
		}
	}
	stranger, _, _ := made(t)
	if _, err := stranger.Opener.Open(home, sealed); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("another key: %v, want failed_precondition", err)
	}
}

// A key is replaced by a line before it: brokers seal with the new one, and
// workers open what either has sealed.
func TestKeysRotate(t *testing.T) {
	_, oldBroker, old := made(t)
	newWorker, _, next := made(t)
	before, err := oldBroker.Sealer.Seal(home, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	both := read(t, []byte("# since today\n"+next[0]+"\n"+old[0]))
	broker := read(t, []byte(next[1]+old[1]))
	after, err := broker.Sealer.Seal(home, []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	for want, sealed := range map[string][]byte{"old": before, "new": after} {
		if got, err := both.Opener.Open(home, sealed); err != nil || string(got) != want {
			t.Errorf("open with both keys: %q, %v, want %q", got, err, want)
		}
	}
	if _, err := newWorker.Opener.Open(home, before); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("open with the new key alone: %v, want failed_precondition", err)
	}
}

func TestDigestsTellValuesApart(t *testing.T) {
	worker, broker, _ := made(t)
	other, _, _ := made(t)
	d := broker.Sealer.Digest(home, []byte("hunter2"))
	if d != worker.Sealer.Digest(home, []byte("hunter2")) {
		t.Error("the halves of one key make different digests")
	}
	if d == broker.Sealer.Digest(home, []byte("hunter3")) || d == other.Sealer.Digest(home, []byte("hunter2")) ||
		d == broker.Sealer.Digest(seal.Place{App: home.App, Name: "X"}, []byte("hunter2")) {
		t.Error("another value, key or name has the same digest")
	}
}

func TestFilesOfKeysAreForTheirOwner(t *testing.T) {
	_, _, lines := made(t)
	path := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(path, []byte(lines[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := seal.Load(path); err != nil || k.Opener == nil {
		t.Fatalf("load: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Load(path); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
	for _, text := range []string{"", "# nothing\n", "hunter2", "bourse-secrets-key aGk=", "bourse-secrets-public " + lines[0][len("bourse-secrets-key "):]} {
		if _, err := seal.Read([]byte(text)); bourse.CodeOf(err) != bourse.CodeInvalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want invalid without the text", text, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	worker, broker, _ := made(f)
	sealed, err := broker.Sealer.Seal(home, []byte("hunter2"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add([]byte{})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := worker.Opener.Open(home, b)
		if err == nil && !bytes.Equal(b, sealed) && string(got) == "hunter2" {
			t.Errorf("%x opens too", b)
		}
	})
}

func FuzzRead(f *testing.F) {
	_, _, lines := made(f)
	f.Add([]byte(lines[0] + lines[1]))
	f.Add([]byte("# x\n\nbourse-secrets-key AAAA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := seal.Read(b)
		if err == nil && k.Sealer == nil {
			t.Error("no error and no key")
		}
	})
}

package seal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
)

// newKeys generates a key file with one line. It returns the keys and the line.
func newKeys(t testing.TB) (*seal.Keys, string) {
	t.Helper()
	line := seal.Generate()
	return read(t, line), string(line)
}

func read(t testing.TB, text []byte) *seal.Keys {
	t.Helper()
	k, err := seal.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var home = seal.Place{App: "01JCANARY", Name: "PASSWORD"}

func TestKeysOfAnAppOpenItsValues(t *testing.T) {
	broker, _ := newKeys(t)
	keys := broker.OfApp(home.App)
	for _, value := range []string{"", "hunter2", strings.Repeat("x", 1<<16)} {
		sealed, err := broker.Seal(home, []byte(value))
		if err != nil || len(value) > 0 && bytes.Contains(sealed, []byte(value)) || len(sealed) != len(value)+seal.Overhead {
			t.Fatalf("seal %d bytes: %d bytes, %v", len(value), len(sealed), err)
		}
		got, err := seal.Open(keys, home, sealed)
		if err != nil || string(got) != value {
			t.Errorf("open: %q, %v, want %q", got, err, value)
		}
		again, err := broker.Seal(home, []byte(value))
		if err != nil || bytes.Equal(again, sealed) {
			t.Errorf("sealing a value twice returned the same result (%v), which reveals that the value has not changed", err)
		}
	}
}

func TestSealedValueOpensOnlyAtItsPlace(t *testing.T) {
	broker, _ := newKeys(t)
	sealed, err := broker.Seal(home, []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]seal.Place{
		"another app":  {App: "01JOTHER", Name: home.Name},
		"another name": {App: home.App, Name: "LOGIN"},
		"a cut place":  {App: home.App + "\x00" + home.Name[:1], Name: home.Name[1:]},
	} {
		if got, err := seal.Open(broker.OfApp(home.App), p, sealed); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s, the app's own keys: %q, %v, want invalid", what, got, err)
		}
		if got, err := seal.Open(broker.OfApp(p.App), p, sealed); err == nil {
			t.Errorf("%s, the keys of that app: opened as %q", what, got)
		}
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if got, err := seal.Open(broker.OfApp(home.App), home, bad); err == nil {
			t.Fatalf("byte %d changed: opened as %q", i, got)
		}
	}
}

// A worker with the keys of one app cannot decrypt another app's value, whichever place
// it claims for the value.
func TestKeysOfAnotherAppOpenNothing(t *testing.T) {
	broker, line := newKeys(t)
	stranger, _ := newKeys(t)
	sealed, err := broker.Seal(home, []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	own := broker.OfApp(home.App)
	for what, keys := range map[string]bourse.AppKeys{
		"of another app":          broker.OfApp("01JOTHER"),
		"an app with a longer id": broker.OfApp(home.App + "\x00"),
		"of another cluster":      stranger.OfApp(home.App),
		"none":                    nil,
		"half a key":              own[:16],
		"a key and a half":        append(bytes.Clone(own), own[:16]...),
		"too many":                bytes.Repeat(own, bourse.MaxAppKeys+1),
	} {
		for _, p := range []seal.Place{home, {App: "01JOTHER", Name: home.Name}} {
			if got, err := seal.Open(keys, p, sealed); err == nil {
				t.Errorf("%s at %+v: opened as %q", what, p, got)
			}
		}
	}
	if bytes.Contains(own, read(t, []byte(line)).OfApp("")) {
		t.Error("the keys of one app contain those of another")
	}
}

// To replace a key, add a line before it: brokers then encrypt with the new key, and a
// holder of both app keys decrypts values sealed with either.
func TestKeysRotate(t *testing.T) {
	before, old := newKeys(t)
	after, next := newKeys(t)
	first, err := before.Seal(home, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	both := read(t, []byte("# since today\n"+next+"\n"+old))
	second, err := both.Seal(home, []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	for want, sealed := range map[string][]byte{"old": first, "new": second} {
		if got, err := seal.Open(both.OfApp(home.App), home, sealed); err != nil || string(got) != want {
			t.Errorf("open with both keys: %q, %v, want %q", got, err, want)
		}
	}
	if got, err := seal.Open(after.OfApp(home.App), home, second); err != nil || string(got) != "new" {
		t.Errorf("the first line's key was not used to seal: %q, %v", got, err)
	}
	if _, err := seal.Open(after.OfApp(home.App), home, first); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("open with the new key alone: %v, want failed_precondition", err)
	}
}

func TestDigestsTellValuesApart(t *testing.T) {
	broker, line := newKeys(t)
	other, _ := newKeys(t)
	d := broker.Digest(home, []byte("hunter2"))
	if d != read(t, []byte(line)).Digest(home, []byte("hunter2")) {
		t.Error("two brokers with the same file compute different digests")
	}
	if d == broker.Digest(home, []byte("hunter3")) || d == other.Digest(home, []byte("hunter2")) ||
		d == broker.Digest(seal.Place{App: home.App, Name: "X"}, []byte("hunter2")) {
		t.Error("another value, key or name has the same digest")
	}
}

func TestLoadRefusesFilesThatOthersCanRead(t *testing.T) {
	_, line := newKeys(t)
	path := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Load(path); err != nil {
		t.Fatalf("load: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Load(path); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: got %v, want code invalid and a hint", err)
	}
	for _, text := range []string{"", "# nothing\n", "hunter2", "bourse-secrets-key aGk=", strings.Repeat(line, bourse.MaxAppKeys+1)} {
		if _, err := seal.Read([]byte(text)); bourse.CodeOf(err) != bourse.CodeInvalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want an invalid error that does not contain the text", text, err)
		}
	}
}

// The keys in an order do not appear in messages, log lines or JSON texts.
func TestKeysAreNotPrinted(t *testing.T) {
	broker, _ := newKeys(t)
	keys := broker.OfApp(home.App)
	claim := bourse.Claim{AppKeys: keys, Order: bourse.Order{AppKeys: keys}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("claim", "claim", claim, "keys", keys)
	slog.New(slog.NewTextHandler(&log, nil)).Info("claim", "claim", claim, "keys", keys)
	text, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(text) + fmt.Sprintf("%v %+v %#v %s %x %d %q", claim, claim, claim, keys, keys, keys, keys)
	coded, err := json.Marshal([]byte(keys))
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		string(keys), strings.Trim(string(coded), `"=`)[:40], fmt.Sprintf("%x", []byte(keys)),
		join(keys, "%d", " "), join(keys, "%#x", ", "),
	} {
		if strings.Contains(all, shown) {
			t.Errorf("%q appears in %q", shown, all)
		}
	}
}

// join formats each byte of b. The formats %d and %#v use such texts for a slice.
func join(b []byte, format, separator string) string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = fmt.Sprintf(format, b[i])
	}
	return strings.Join(out, separator)
}

func FuzzOpen(f *testing.F) {
	broker, _ := newKeys(f)
	sealed, err := broker.Seal(home, []byte("hunter2"))
	if err != nil {
		f.Fatal(err)
	}
	keys := broker.OfApp(home.App)
	f.Add([]byte(keys), sealed)
	f.Add([]byte(keys), []byte{})
	f.Add([]byte(keys), []byte{2})
	f.Add([]byte{1}, sealed)
	f.Add([]byte(slices.Concat(broker.OfApp("x"), keys)), sealed[:seal.Overhead])
	f.Fuzz(func(t *testing.T, k, b []byte) {
		got, err := seal.Open(k, home, b)
		if err == nil && !bytes.Equal(b, sealed) && string(got) == "hunter2" {
			t.Errorf("the modified value %x was opened", b)
		}
		if err == nil && bytes.Equal(b, sealed) && !bytes.Contains(k, keys) {
			t.Errorf("the keys %x also open the value", k)
		}
	})
}

func FuzzRead(f *testing.F) {
	_, line := newKeys(f)
	f.Add([]byte(line + line))
	f.Add([]byte("# x\n\nbourse-secrets-key AAAA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := seal.Read(b)
		if err != nil {
			return
		}
		keys := k.OfApp(home.App)
		sealed, err := k.Seal(home, b)
		if err != nil || keys.Validate() != nil {
			t.Fatalf("seal with %q: %v", b, err)
		}
		if got, err := seal.Open(keys, home, sealed); err != nil || !bytes.Equal(got, b) {
			t.Errorf("opened as %q, %v", got, err)
		}
	})
}

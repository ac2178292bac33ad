package admission_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

func TestLoadGossipKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	load := func(text string) ([][]byte, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := admission.LoadGossipKeys(path, nil)
		if err != nil {
			return nil, err
		}
		return keys.Get(), nil
	}
	for _, n := range []int{16, 24, 32} {
		key := bytes.Repeat([]byte{0xab}, n)
		for _, text := range []string{hex.EncodeToString(key), base64.StdEncoding.EncodeToString(key)} {
			if got, err := load(text + "\n"); err != nil || len(got) != 1 || !bytes.Equal(got[0], key) {
				t.Errorf("%s: got %x, %v", text, got, err)
			}
		}
	}
	first, second := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)
	got, err := load("# new\n\n" + hex.EncodeToString(first) + "\r\n" + base64.StdEncoding.EncodeToString(second))
	if err != nil || len(got) != 2 || !bytes.Equal(got[0], first) || !bytes.Equal(got[1], second) {
		t.Errorf("two keys: got %x, %v", got, err)
	}
	good := hex.EncodeToString(first) + "\n"
	for _, text := range []string{
		"", "# none\n", "secret", hex.EncodeToString(make([]byte, 15)), base64.StdEncoding.EncodeToString(make([]byte, 33)), "\x00",
		good + "secret", strings.Repeat(good, 9),
	} {
		if _, err := load(text); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: got %v, want an error", text, err)
		}
	}
}

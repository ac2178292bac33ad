package admission_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

func TestLoadGossipKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	load := func(text string) ([]byte, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return admission.LoadGossipKey(path)
	}
	for _, n := range []int{16, 24, 32} {
		key := bytes.Repeat([]byte{0xab}, n)
		for _, text := range []string{hex.EncodeToString(key), base64.StdEncoding.EncodeToString(key)} {
			if got, err := load(text + "\n"); err != nil || !bytes.Equal(got, key) {
				t.Errorf("%s: got %x, %v", text, got, err)
			}
		}
	}
	for _, text := range []string{"", "secret", hex.EncodeToString(make([]byte, 15)), base64.StdEncoding.EncodeToString(make([]byte, 33)), "\x00"} {
		if _, err := load(text); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: got %v, want it refused", text, err)
		}
	}
}

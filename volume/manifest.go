package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"

	"github.com/bourse-dev/bourse"
)

// ChunkBytes is the size of a manifest's chunks; the last may be shorter.
const ChunkBytes = 4 << 20

// Manifest describes what an image holds, chunk by chunk. Chunks that are all zero
// are left out, however they are stored, so that the same content has the same
// digest everywhere.
type Manifest struct {
	ID        string          `json:"id"`     // to ask its chunks of; see Store.Manifest
	Volume    bourse.VolumeID `json:"volume"` // whose content it is
	Bytes     int64           `json:"bytes"`  // of the image
	Encrypted bool            `json:"encrypted,omitempty"`
	Key       []byte          `json:"key,omitempty"` // opens an encrypted image; for another worker, never for a client
	Chunks    []Chunk         `json:"chunks"`        // by number
	Digest    string          `json:"digest"`        // of all but ID, Volume and Key: "sha256:…"
}

// Chunk is one chunk that is not all zero.
type Chunk struct {
	N      int    `json:"n"`      // it begins at N times ChunkBytes
	Digest string `json:"digest"` // "sha256:…"
}

const digestPrefix = "sha256:"

// chunks returns how many chunks an image has, zero ones included.
func chunks(bytes int64) int { return int((bytes + ChunkBytes - 1) / ChunkBytes) }

// chunkLength returns the bytes of chunk n of an image.
func chunkLength(bytes int64, n int) int64 { return min(ChunkBytes, bytes-int64(n)*ChunkBytes) }

// Data returns the bytes of the chunks that have to be sent.
func (m *Manifest) Data() int64 {
	var sum int64
	for _, c := range m.Chunks {
		sum += chunkLength(m.Bytes, c.N)
	}
	return sum
}

// sum returns the digest of a manifest.
func (m *Manifest) sum() string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "bourse volume 1 %d %d %t\n", m.Bytes, ChunkBytes, m.Encrypted) // a hash takes all
	for _, c := range m.Chunks {
		_, _ = fmt.Fprintf(h, "%d %s\n", c.N, c.Digest)
	}
	return digestOf(h)
}

func digestOf(h hash.Hash) string { return digestPrefix + hex.EncodeToString(h.Sum(nil)) }

// Validate reports CodeInvalid when the manifest contradicts itself: it may
// come from anywhere.
func (m *Manifest) Validate() error {
	bad := func(format string, args ...any) error {
		return bourse.Errorf(bourse.CodeInvalid, "invalid manifest of a volume: "+format, args...)
	}
	if m.Bytes < 1 || m.Bytes > bourse.MaxVolumeGB*gib || m.Bytes%blockSize != 0 {
		return bad("%d bytes", m.Bytes)
	}
	last := -1
	for _, c := range m.Chunks {
		if c.N <= last || c.N >= chunks(m.Bytes) {
			return bad("chunk %d of %d behind chunk %d", c.N, chunks(m.Bytes), last)
		}
		if !validDigest(c.Digest) {
			return bad("digest %s of chunk %d", bourse.Quoted(c.Digest), c.N)
		}
		last = c.N
	}
	if m.Digest != m.sum() {
		return bad("its digest is not that of its chunks")
	}
	return nil
}

func validDigest(s string) bool {
	hexa, ok := strings.CutPrefix(s, digestPrefix)
	return ok && len(hexa) == 2*sha256.Size && strings.Trim(hexa, "0123456789abcdef") == ""
}

// DecodeManifest reads what json.Marshal wrote of a manifest, and validates it.
func DecodeManifest(b []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, bourse.Errorf(bourse.CodeInvalid, "invalid manifest of a volume: %w", err)
	}
	return m, m.Validate()
}

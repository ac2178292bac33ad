package volume

import (
	"os"
	"slices"
	"sync"
)

// known caches the manifests of the volumes that were described last, so
// that one that goes to many workers is read once.
type known struct {
	mu   sync.Mutex
	list []described // the latest last
}

type described struct {
	id      string
	version version
	m       Manifest
}

// mostKnown bounds the memory: a manifest has about 100 bytes for each 4 MiB.
const mostKnown = 8

// version identifies the content of an image: it changes when the image is mounted,
// written to, or replaced.
type version struct {
	mounts   int
	size     int64
	modified int64  // nanoseconds since 1970
	file     uint64 // inode
}

func versionOf(image *os.File, mounts int) (version, error) {
	st, err := image.Stat()
	if err != nil {
		return version{}, err
	}
	return version{mounts: mounts, size: st.Size(), modified: st.ModTime().UnixNano(), file: inodeOf(st)}, nil
}

// find returns the manifest of this version of an image. Its chunks are shared,
// and must not be changed.
func (k *known) find(id string, v version) (Manifest, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.list, func(d described) bool { return d.id == id && d.version == v })
	if i < 0 {
		return Manifest{}, false
	}
	return k.list[i].m, true
}

func (k *known) keep(id string, v version, m Manifest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(d described) bool { return d.id == id })
	if len(k.list) >= mostKnown {
		k.list = slices.Delete(k.list, 0, 1)
	}
	k.list = append(k.list, described{id, v, m})
}

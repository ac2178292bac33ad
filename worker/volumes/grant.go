package volumes

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/store"
)

// grantLife is how long a fork may take, interruptions included.
const grantLife = 24 * time.Hour

// grantKeyFile holds what grants are made with. It outlives the daemon, so that
// a fork goes on after a restart of either side; without it what is being forked
// has to be ordered again.
const grantKeyFile = "grant.key"

const grantKeySize = 32

// grants makes and checks grants: texts that let one other worker read one
// Record or snapshot. Nothing is kept of them.
type grants struct {
	mu  sync.Mutex
	key []byte // guarded by mu; read, or made, when it is first needed
}

// secret returns the key of grants in a directory.
func (g *grants) secret(dir string) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.key != nil {
		return g.key, nil
	}
	path := filepath.Join(dir, grantKeyFile)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) != grantKeySize {
		key = make([]byte, grantKeySize)
		_, _ = rand.Read(key) // crypto/rand never fails
		err = writeDurably(path, key)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the key of grants: %w", err)
	}
	g.key = key
	return key, nil
}

// writeDurably writes a file that is there whole or not at all.
func writeDurably(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Grant lets another worker read a volume or snapshot of an app, for a day. A
// broker asks for it, when it has a fork or a restoration claimed there.
func (vs *Volumes) Grant(ctx context.Context, id string, req *fabric.GrantRequest, now time.Time) (string, error) {
	if err := req.To.Validate(); err != nil {
		return "", err
	}
	if err := vs.state.Store.Sync(ctx); err != nil { // it may have been made a moment ago
		return "", err
	}
	if err := vs.state.Store.View(func(tx *store.Tx) error { return mayGrant(tx, id, &req.App) }); err != nil {
		return "", err
	}
	key, err := vs.grants.secret(vs.dir)
	if err != nil {
		return "", err
	}
	until := strconv.FormatInt(now.Add(grantLife).Unix(), 36)
	return string(req.To) + "." + until + "." + grantMark(key, id, string(req.To), until), nil
}

// mayGrant reports CodeNotFound unless there is such a volume or snapshot of the
// app. Whether it can be read yet shows when it is read.
func mayGrant(tx *store.Tx, id string, app *bourse.App) error {
	if snap := bourse.SnapshotID(id); snap.Validate() == nil {
		_, v, err := tx.Snapshot(snap)
		if err == nil && !v.OwnedBy(app) {
			err = errNoSnapshot
		}
		return err
	}
	v, err := tx.Volume(bourse.VolumeID(id))
	if err == nil && !v.OwnedBy(app) {
		err = errNoVolume
	}
	return err
}

// grantMark is what only the holder of the key can make. None of the parts can
// have a NUL in it.
func grantMark(key []byte, id, to, until string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("export\x00" + id + "\x00" + to + "\x00" + until))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Granted returns CodeForbidden unless grant allows reading a volume or snapshot,
// and its reader is the worker that has it. Without TLS, where
// conn is nil, the grant alone counts.
func (vs *Volumes) Granted(id, grant string, conn *tls.ConnectionState) error {
	key, err := vs.grants.secret(vs.dir)
	if err != nil {
		return err
	}
	to, rest, _ := strings.Cut(grant, ".")
	until, mark, _ := strings.Cut(rest, ".")
	if !hmac.Equal([]byte(mark), []byte(grantMark(key, id, to, until))) {
		return bourse.Errorf(bourse.CodeForbidden, "no broker has granted this worker to read %s", bourse.Quoted(id))
	}
	end, err := strconv.ParseInt(until, 36, 64)
	if err != nil || time.Now().Unix() > end {
		return bourse.Errorf(bourse.CodeForbidden, "the grant to read %s has expired: order it again", id)
	}
	if conn == nil {
		return nil
	}
	if len(conn.PeerCertificates) > 0 {
		peer, err := admission.IdentityOf(conn.PeerCertificates[0])
		if err == nil && peer.Role == bourse.RoleWorker && string(peer.ID) == to {
			return nil
		}
	}
	return bourse.Errorf(bourse.CodeForbidden, "the grant to read %s is another worker's", id)
}

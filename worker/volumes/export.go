package volumes

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
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
	"github.com/bourse-dev/bourse/volume"
)

// exportRest is the time after the last read of a snapshot during which it is not
// removed, because its reader may come back.
const exportRest = 10 * time.Minute

// exports remembers what other workers read here. It only delays the removal of
// snapshots, and does not outlive the process.
type exports struct {
	mu   sync.Mutex
	read map[bourse.SnapshotID]time.Time // guarded by mu
}

// note records that a snapshot is read now. It returns false if the snapshot has
// expired and was not read recently.
func (e *exports) note(s *bourse.Snapshot, now time.Time) (may bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.read[s.ID]; s.Expired(now) && (!ok || now.Sub(at) >= exportRest) {
		return false
	}
	if e.read == nil {
		e.read = map[bourse.SnapshotID]time.Time{}
	}
	e.read[s.ID] = now
	return true
}

// recent returns the snapshots that were read recently, and forgets the others.
func (e *exports) recent(now time.Time) map[bourse.SnapshotID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[bourse.SnapshotID]bool{}
	for id, at := range e.read {
		if now.Sub(at) < exportRest {
			out[id] = true
		} else {
			delete(e.read, id)
		}
	}
	return out
}

// exported checks, by the worker's record, that a volume or snapshot can be read.
func (vs *Volumes) exported(id string) error {
	if snap := bourse.SnapshotID(id); snap.Validate() == nil {
		return vs.state.Store.View(func(tx *store.Tx) error {
			s, _, err := tx.Snapshot(snap)
			if err == nil && s.State == bourse.SnapshotCreating {
				err = bourse.Errorf(bourse.CodeUnavailable, "snapshot %s is being taken", snap)
			}
			if err == nil && (s.State != bourse.SnapshotCreated || !vs.exports.note(&s, time.Now())) {
				err = errNoSnapshot
			}
			return err
		})
	}
	v, err := vs.now(bourse.VolumeID(id))
	switch {
	case err != nil:
		return err
	case v.State.Usable():
		return nil
	case v.State == bourse.VolumeCreating || v.State == bourse.VolumeRestoring || v.State == bourse.VolumeHydrating:
		return bourse.Errorf(bourse.CodeUnavailable, "volume %s is %s", v.ID, v.State)
	}
	return errNoVolume
}

// Export writes the content of a volume or snapshot as a stream, for another worker. A
// volume in use is copied first, which needs space.
func (vs *Volumes) Export(ctx context.Context, id string, from volume.Position, to io.Writer) error {
	if err := vs.state.Store.Sync(ctx); err != nil { // it may have been created a moment ago
		return err
	}
	err := vs.exported(id)
	if err == nil && from.Moment == "" {
		err = vs.spaceToExport(ctx, bourse.VolumeID(id))
	}
	if err != nil {
		return err
	}
	return vs.host.Export(ctx, id, from, &noted{to: to, vs: vs, id: id, at: time.Now()})
}

// noted is the stream of a volume or snapshot. Every minute it records that the stream
// is still read.
type noted struct {
	to io.Writer
	vs *Volumes
	id string
	at time.Time
}

// Write implements io.Writer.
func (n *noted) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(n.at) >= time.Minute {
		if err := n.vs.exported(n.id); err != nil {
			return 0, err
		}
		n.at = now
	}
	return n.to.Write(p)
}

// spaceToExport refuses to copy a volume in use if the ledger has no space for a copy.
// It takes nothing: the copy exists only while it is read.
func (vs *Volumes) spaceToExport(ctx context.Context, id bourse.VolumeID) error {
	if id.Validate() != nil {
		return nil //nolint:nilerr // the id is a snapshot's
	}
	v, err := vs.now(id)
	if err != nil || v.Machine == "" {
		return err
	}
	space := snapshotDisk(vs.snapshotSpace(ctx, &v))
	return vs.state.Store.View(func(tx *store.Tx) error {
		r, err := vs.admit.Room(tx, nil, bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: int64(space)}})
		if r != nil {
			err = insufficient(r, "could not copy volume "+string(id))
		}
		return err
	})
}

// grantLife is how long a fork may take, including interruptions.
const grantLife = 24 * time.Hour

// grantKeyFile contains the key of grants. It outlives the daemon, so that a fork
// continues after a restart of either side. If it is lost, forks in progress must be
// ordered again.
const grantKeyFile = "grant.key"

const grantKeySize = 32

// grants creates and checks grants, which let one other worker read one volume or
// snapshot. Grants are not stored.
type grants struct {
	mu  sync.Mutex
	key []byte // guarded by mu; read or created at the first use
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

// writeDurably writes a file atomically and durably.
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

// Grant lets another worker read an app's volume or snapshot for a day. A broker calls
// it when that worker has claimed a fork or a restoration.
func (vs *Volumes) Grant(ctx context.Context, id string, req *fabric.GrantRequest, now time.Time) (string, error) {
	if err := req.To.Validate(); err != nil {
		return "", err
	}
	if err := vs.state.Store.Sync(ctx); err != nil { // it may have been created a moment ago
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

// mayGrant returns CodeNotFound unless the app has such a volume or snapshot. It does not
// check whether the data is complete: each read does.
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

// grantMark authenticates the parts of a grant, none of which can contain a NUL.
func grantMark(key []byte, id, to, until string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("export\x00" + id + "\x00" + to + "\x00" + until))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Granted returns CodeForbidden unless grant allows its owner to read a volume or
// snapshot, and the reader is its owner. Without TLS, if conn is nil, it checks the
// grant alone.
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

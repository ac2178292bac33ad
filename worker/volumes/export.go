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
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
)

// exportRetention is the minimum time between the last read of a snapshot and its removal. It
// gives an interrupted reader time to resume.
const exportRetention = 10 * time.Minute

// exports tracks which snapshots other workers have read recently, so that their removal can be delayed. It is not
// persisted.
type exports struct {
	mu   sync.Mutex
	read map[bourse.SnapshotID]time.Time // guarded by mu
}

// note records that a snapshot is being read. It returns false if the snapshot must not be read because it has expired
// and was not read recently.
func (e *exports) note(s *bourse.Snapshot, now time.Time) (may bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.read[s.ID]; s.Expired(now) && (!ok || now.Sub(at) >= exportRetention) {
		return false
	}
	if e.read == nil {
		e.read = map[bourse.SnapshotID]time.Time{}
	}
	e.read[s.ID] = now
	return true
}

// recent returns the snapshots that were read recently, and removes all other snapshots from e.
func (e *exports) recent(now time.Time) map[bourse.SnapshotID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[bourse.SnapshotID]bool{}
	for id, at := range e.read {
		if now.Sub(at) < exportRetention {
			out[id] = true
		} else {
			delete(e.read, id)
		}
	}
	return out
}

// exported returns an error if, according to the worker's records, another worker cannot read a volume or snapshot now.
// If a snapshot can be read, exported also records the time of the read.
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
	v, err := vs.current(bourse.VolumeID(id))
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
// volume that belongs to a machine is copied first, which requires disk space.
func (vs *Volumes) Export(ctx context.Context, id string, from volume.Position, to io.Writer) error {
	if err := vs.state.Store.Sync(ctx); err != nil { // make sure that a volume created a moment ago is visible
		return err
	}
	err := vs.exported(id)
	if err == nil && from.Moment == "" {
		err = vs.spaceToExport(ctx, bourse.VolumeID(id))
	}
	if err != nil {
		return err
	}
	return vs.host.Export(ctx, id, from, &exportWriter{to: to, vs: vs, id: id, at: time.Now()})
}

// exportWriter forwards the stream of a volume or snapshot. Once a minute, it calls exported, to check that the volume
// or snapshot can still be read and, for a snapshot, to record that it is being read.
type exportWriter struct {
	to io.Writer
	vs *Volumes
	id string
	at time.Time
}

// Write implements io.Writer.
func (n *exportWriter) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(n.at) >= time.Minute {
		if err := n.vs.exported(n.id); err != nil {
			return 0, err
		}
		n.at = now
	}
	return n.to.Write(p)
}

// spaceToExport returns an error if a volume must be copied in order to export it and the ledger has no room for the
// copy. It does not reserve the space, because the copy is temporary.
func (vs *Volumes) spaceToExport(ctx context.Context, id bourse.VolumeID) error {
	if id.Validate() != nil {
		return nil //nolint:nilerr // the id is a snapshot's
	}
	v, err := vs.current(id)
	if err != nil || v.Machine == "" {
		return err
	}
	space := snapshotDisk(vs.snapshotSpace(ctx, &v))
	return vs.state.Store.View(func(tx *store.Tx) error {
		r, err := vs.admit.CheckRoom(tx, nil, bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: int64(space)}})
		if r != nil {
			err = insufficient(r, "could not copy volume "+string(id))
		}
		return err
	})
}

// grantLife is the lifetime of a grant, which limits how long a fork may take,
// including interruptions.
const grantLife = 24 * time.Hour

// grantKeyFile is the file that contains the key for grants. The key is stored so that forks in progress can continue
// after the source or the target worker has restarted. If the file is lost, they must be ordered again.
const grantKeyFile = "grant.key"

const grantKeySize = 32

// grants creates and checks grants. Each grant allows one other worker to read one volume or snapshot. This worker does
// not store grants; it authenticates them with a key.
type grants struct {
	mu  sync.Mutex
	key []byte // guarded by mu; read or created when it is first needed
}

// secret returns the key for grants. It reads the key from a file in dir, creating the file if necessary.
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
		err = wholefile.Write(path, key, 0o600)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "read or create the key for grants: %w", err)
	}
	g.key = key
	return key, nil
}

// Grant returns a grant that allows another worker to read an app's volume or snapshot for a day. A broker requests the
// grant before it sends the other worker a claim for a fork, or for a volume that is restored from a snapshot.
func (vs *Volumes) Grant(ctx context.Context, id string, req *fabric.GrantRequest, now time.Time) (string, error) {
	if err := req.To.Validate(); err != nil {
		return "", err
	}
	if err := vs.state.Store.Sync(ctx); err != nil { // make sure that a volume created a moment ago is visible
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

// mayGrant returns CodeNotFound unless the volume or snapshot exists and belongs to the app. It does not check whether
// the data is complete, because each read checks that.
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

// grantMark returns the MAC of a grant's fields. None of the fields can contain a NUL.
func grantMark(key []byte, id, to, until string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("export\x00" + id + "\x00" + to + "\x00" + until))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Granted returns CodeForbidden unless the grant is valid for the volume or snapshot, and was issued to the worker that
// is authenticated on conn. If the connection does not use TLS, conn is nil, and the worker's identity is not checked.
func (vs *Volumes) Granted(id, grant string, conn *tls.ConnectionState) error {
	key, err := vs.grants.secret(vs.dir)
	if err != nil {
		return err
	}
	to, rest, _ := strings.Cut(grant, ".")
	until, mark, _ := strings.Cut(rest, ".")
	if !hmac.Equal([]byte(mark), []byte(grantMark(key, id, to, until))) {
		return bourse.Errorf(bourse.CodeForbidden, "no broker has permitted this worker to read %s", bourse.Quoted(id))
	}
	end, err := strconv.ParseInt(until, 36, 64)
	if err != nil || time.Now().Unix() > end {
		return bourse.Errorf(bourse.CodeForbidden, "the grant to read %s has expired: order the copy again", id)
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
	return bourse.Errorf(bourse.CodeForbidden, "the grant to read %s belongs to another worker", id)
}

package enroll

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// Terms determine what an invitation permits.
type Terms struct {
	Roles   []bourse.Role `json:"roles"`            // roles that the host's servers may have
	Region  bourse.Region `json:"region,omitempty"` // region that the host must have; "" means any
	Uses    int           `json:"uses"`             // maximum number of hosts
	Expires time.Time     `json:"expires"`
}

// Issued is an invitation as its broker stores it: with a digest of its secret, but
// without the secret.
type Issued struct {
	ID string `json:"id"`
	Terms
	Made   time.Time `json:"made"`
	Digest []byte    `json:"digest"` // digest of the secret
	Used   []Use     `json:"used,omitempty"`
}

// Use represents a host's use of an invitation.
type Use struct {
	Host bourse.WorkerID `json:"host"`
	At   time.Time       `json:"at"`
	Keys []byte          `json:"keys"` // digest of the servers' public keys; identifies a host that repeats its request
}

// Ended returns the reason why an invitation can no longer be used, or "" if it can still be used.
func (i *Issued) Ended(now time.Time) string {
	switch {
	case !now.Before(i.Expires):
		return "has expired"
	case len(i.Used) >= i.Uses:
		return "has been used"
	}
	return ""
}

// Ledger stores a broker's invitations in a file. Its methods are safe for concurrent use. Methods
// that change the ledger return after the change is durable.
type Ledger struct {
	path string

	mu  sync.Mutex
	all map[string]*Issued
}

// maxIssued limits the number of invitations that can still be used. Expired invitations are kept
// for a limited time (retention), so that users can see how they were used.
const (
	maxIssued = 1000
	retention = 30 * 24 * time.Hour
)

// OpenLedger opens the ledger in the file at path, which need not exist. Errors:
// invalid.
func OpenLedger(path string) (*Ledger, error) {
	l := &Ledger{path: path, all: map[string]*Issued{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = l.decode(data)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the join tokens: %w", err)
	}
	return l, nil
}

func (l *Ledger) decode(data []byte) error {
	var list []*Issued
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, i := range list {
		if i == nil || i.ID == "" {
			return errors.New("an entry without an id")
		}
		l.all[i.ID] = i
	}
	return nil
}

// Make creates an invitation. It also returns the secret, which the ledger does not store. Errors:
// failed_precondition if there are too many invitations.
func (l *Ledger) Make(terms Terms, now time.Time) (Issued, string, error) {
	i := Issued{ID: rand.Text()[:10], Terms: terms, Made: now}
	secret := rand.Text()
	i.Digest = digest(secret)
	err := l.change(func(all map[string]*Issued) error {
		maps.DeleteFunc(all, func(_ string, old *Issued) bool { return now.Sub(old.Expires) > retention })
		live := 0
		for _, old := range all {
			if old.Ended(now) == "" {
				live++
			}
		}
		if live >= maxIssued {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "%d join tokens can still be used: revoke some", live)
		}
		all[i.ID] = &i
		return nil
	})
	return i, secret, err
}

// List returns all invitations, newest first.
func (l *Ledger) List() []Issued {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Issued, 0, len(l.all))
	for _, i := range l.all {
		list = append(list, *i)
	}
	slices.SortFunc(list, func(a, b Issued) int { return b.Made.Compare(a.Made) })
	return list
}

// Revoke removes an invitation. Errors: not_found.
func (l *Ledger) Revoke(id string) error {
	return l.change(func(all map[string]*Issued) error {
		if all[id] == nil {
			return bourse.Errorf(bourse.CodeNotFound, "this broker has no join token %s", bourse.Quoted(id))
		}
		delete(all, id)
		return nil
	})
}

// Verify checks that the invitation exists and has this secret. Errors: unauthorized.
func (l *Ledger) Verify(id, secret string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := find(l.all, id, secret)
	return err
}

func find(all map[string]*Issued, id, secret string) (*Issued, error) {
	i := all[id]
	if i == nil || subtle.ConstantTimeCompare(digest(secret), i.Digest) != 1 {
		return nil, bourse.Errorf(bourse.CodeUnauthorized, "the broker does not know this join token: it was revoked, or another broker created it")
	}
	return i, nil
}

// Use records that a host uses an invitation, and returns the invitation's terms. If a host repeats
// its request with the same keys, both requests count as one use. taken must report whether a name
// conflicts with the name of a server in the cluster. Errors: unauthorized if the secret is wrong;
// forbidden if the invitation can no longer be used, or does not permit this request;
// already_exists if a name is taken.
func (l *Ledger) Use(id, secret string, r *Request, now time.Time, taken func(bourse.WorkerID) bool) (Terms, error) {
	var terms Terms
	err := l.change(func(all map[string]*Issued) error {
		old, err := find(all, id, secret)
		if err != nil {
			return err
		}
		for _, s := range r.Servers {
			if !slices.Contains(old.Roles, s.Role) {
				return bourse.Errorf(bourse.CodeForbidden, "join token %s is not for the role %s", id, bourse.Quoted(string(s.Role)))
			}
		}
		if old.Region != "" && r.Region != "" && old.Region != r.Region {
			return bourse.Errorf(bourse.CodeForbidden, "join token %s is for region %s, not for %s", id, old.Region, bourse.Quoted(string(r.Region)))
		}
		keys := r.digest()
		if now.Before(old.Expires) && slices.ContainsFunc(old.Used, func(u Use) bool { return u.Host == r.Host && slices.Equal(u.Keys, keys) }) {
			terms = old.Terms
			return errUnchanged
		}
		if why := old.Ended(now); why != "" {
			return bourse.Errorf(bourse.CodeForbidden, "join token %s %s: create another one", id, why)
		}
		for _, s := range r.Servers {
			if name := ServerName(r.Host, s.Role); taken(name) {
				return bourse.Errorf(bourse.CodeAlreadyExists, "the cluster already has a server %s, or one whose machines could have the same addresses: choose another name for this host", name)
			}
		}
		terms = old.Terms
		used := *old
		used.Used = append(slices.Clip(old.Used), Use{Host: r.Host, At: now, Keys: keys})
		all[id] = &used
		return nil
	})
	return terms, err
}

// Conflict reports whether two servers cannot have these names at the same time: the names are
// equal, or the same tag can be derived from both. Without this check, a worker could choose a name
// that lets it take over another worker's private addresses.
func Conflict(a, b bourse.WorkerID) bool {
	tags := a.Tags()
	return a == b || slices.ContainsFunc(tags[:], func(t bourse.WorkerTag) bool { return b.TagRank(t) < bourse.TagChoices })
}

// errUnchanged is returned by the update function of Ledger.change if there is nothing to store.
var errUnchanged = errors.New("nothing has changed")

// change applies update to a copy of the invitations and stores the result. If update or the write
// fails, the invitations do not change.
func (l *Ledger) change(update func(map[string]*Issued) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := maps.Clone(l.all)
	if err := update(next); err != nil {
		if errors.Is(err, errUnchanged) {
			return nil
		}
		return err
	}
	list := slices.SortedFunc(maps.Values(next), func(a, b *Issued) int { return a.Made.Compare(b.Made) })
	data, err := json.MarshalIndent(list, "", "  ")
	if err == nil {
		err = wholefile.Write(l.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "store the join tokens: %w", err)
	}
	l.all = next
	return nil
}

func digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

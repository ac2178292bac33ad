package admission

import (
	"crypto/ecdsa"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestAuthor checks that Author accepts a certificate if the cluster's CA signed it and it was
// valid at the given time, even if it has expired since.
func TestAuthor(t *testing.T) {
	now := time.Now()
	ca, err := NewCA("test", now)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := NewCA("test", now)
	if err != nil {
		t.Fatal(err)
	}
	credentials := func(ca *CA, issued time.Time) *Credentials {
		t.Helper()
		pair, err := ca.Issue(Identity{"w1", bourse.RoleWorker}, nil, issued)
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCredentials(ca.Pair().Cert, pair)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := credentials(ca, now)
	birth, key := c.Own()
	site, role, public, err := c.Author(birth, now)
	if err != nil || site != "w1" || role != bourse.RoleWorker || !key.Public().(*ecdsa.PublicKey).Equal(public) {
		t.Errorf("got author %s %s with key %v, %v; want worker w1 with its own key", role, site, public, err)
	}
	if _, _, _, err := c.Author(birth, now.Add(certLife-time.Minute)); err != nil {
		t.Errorf("while the certificate is valid: %v", err)
	}
	theirs, _ := credentials(stranger, now).Own()
	authority := ca.cert.Raw
	for name, x := range map[string]struct {
		birth []byte
		at    time.Time
	}{
		"before it held": {birth, now.Add(-2 * time.Hour)}, "after it held": {birth, now.Add(certLife + time.Minute)},
		"of another CA": {theirs, now}, "certificate of the CA itself": {authority, now}, "cut short": {birth[:len(birth)-1], now}, "none": {nil, now},
		"a key": {[]byte("key worker 01234567890123456789012345678901"), now},
	} {
		if site, role, _, err := c.Author(x.birth, x.at); bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("%s: %s %s, error %v, want %s", name, role, site, err, bourse.CodeForbidden)
		}
	}
}

// FuzzAuthor passes arbitrary bytes to Author.
func FuzzAuthor(f *testing.F) {
	now := time.Now()
	ca, err := NewCA("test", now)
	if err != nil {
		f.Fatal(err)
	}
	pair, err := ca.Issue(Identity{"w1", bourse.RoleWorker}, nil, now)
	if err != nil {
		f.Fatal(err)
	}
	c, err := NewCredentials(ca.Pair().Cert, pair)
	if err != nil {
		f.Fatal(err)
	}
	birth, _ := c.Own()
	f.Add(birth)
	f.Add(birth[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		if site, _, _, err := c.Author(b, now); err == nil && site != "w1" || err != nil && bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("got server %s with error %v", site, err)
		}
	})
}

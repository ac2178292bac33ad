package volumes

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// FuzzGrant checks that no string is accepted as a grant unless it was issued as one.
func FuzzGrant(f *testing.F) {
	key := make([]byte, grantKeySize)
	f.Add("w2.t5z3k0.AAAA", "vol_1")
	f.Add("..", "")
	f.Add("w2."+strings.Repeat("z", 40)+".", "vol_1")
	vs := &Volumes{}
	vs.grants.key = key
	f.Fuzz(func(t *testing.T, grant, id string) {
		if err := vs.Granted(id, grant, nil); bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("got %v", err)
		}
	})
}

package admission_test

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// TestCertificateStatesTag checks that the CA can issue a certificate that contains a worker's tag.
// Workers whose tag comes from an earlier release need it. A broker's certificate must not contain
// a tag, and no certificate may contain another server's name.
func TestCertificateStatesTag(t *testing.T) {
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	tag := admission.TagName(0x00a1b2)
	for _, x := range []struct {
		role bourse.Role
		host string
		want bool
	}{
		{bourse.RoleWorker, tag, true},
		{bourse.RoleBroker, tag, false},
		{bourse.RoleWorker, "x" + tag, false},
		{bourse.RoleWorker, "a.00a1b2.tag.bourse.internal", false},
		{bourse.RoleWorker, "A1B2.tag.bourse.internal", false},
		{bourse.RoleWorker, "tag.bourse.internal", false},
		{bourse.RoleWorker, "w2.worker.bourse.internal", false},
	} {
		_, err := ca.Issue(admission.Identity{ID: "w1", Role: x.role}, []string{x.host}, time.Now())
		if (err == nil) != x.want {
			t.Errorf("%s with %q: %v, want a certificate: %t", x.role, x.host, err, x.want)
		}
	}
}

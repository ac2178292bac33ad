package worker

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// ofOrg makes an order belong to an app of the organization.
func ofOrg(org string) func(*bourse.Order) {
	return func(o *bourse.Order) {
		o.App = bourse.App{Name: bourse.AppName("app-of-" + org), ID: bourse.NewAppID(), Org: org, CreatedAt: o.App.CreatedAt}
		o.ID = bourse.NewOrderID().In(o.App.ID)
	}
}

// A private image is pulled with the credentials of its machine's organization. Other
// organizations cannot use it even if it is already on the host.
func TestImagesArePulledForTheirOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		h.rig.images.private = map[string]string{rigImage: "acme"}
		order := newOrder(t, image(rigImage), ofOrg("rival"))
		q, err := h.quote(t.Context(), order)
		if err != nil || q.MissingBytes != admit.UnknownImage {
			t.Errorf("before: %d bytes are missing according to the rival's quote, %v, want an unknown image's size", q.MissingBytes, err)
		}
		m := h.place(image(rigImage), ofOrg("acme"))
		if got := h.rig.images.asked; !slices.Equal(got, []string{"acme"}) {
			t.Errorf("pulled for %q, want acme", got)
		}
		if q, err = h.quote(t.Context(), order); err != nil || q.MissingBytes != admit.UnknownImage {
			t.Errorf("%d bytes are missing according to the rival's quote, %v, want an unknown image's size", q.MissingBytes, err)
		}
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedNoImage || refusal.Resource != rigImage || refusal.Detail == "" {
			t.Errorf("the rival's order: refusal %+v, %v, want a refusal because of the image", refusal, err)
		}
		if m = h.get(m.ID); m.State != bourse.StateStarted {
			t.Errorf("acme's machine is %s", m.State)
		}
	})
}

package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestLostAfterIsLimited checks that a worker counts as permanently lost before brokers stop keeping cancellations for
// it. If it returned later, an order might be filled twice.
func TestLostAfterIsLimited(t *testing.T) {
	for _, x := range []struct {
		args []string
		want time.Duration
		good bool
	}{
		{nil, bourse.LostAfter, true},
		{[]string{"--lost-after", "1h"}, time.Hour, true},
		{[]string{"--lost-after", "144h"}, bourse.MaxLostAfter, true},
		{[]string{"--lost-after", "145h"}, 145 * time.Hour, false},
		{[]string{"--lost-after", "-1s"}, -time.Second, false},
	} {
		var c BrokerConfig
		settle(t, &c, x.args...)
		err := problemsOf(&c)
		if bad := err != nil && strings.Contains(err.Error(), "--lost-after"); c.LostAfter != x.want || bad == x.good {
			t.Errorf("%v: %s, %v; want %s, valid: %t", x.args, c.LostAfter, err, x.want, x.good)
		}
	}
}

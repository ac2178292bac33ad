package machinesapi_test

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestFromAppCreatedAt checks that the creation time of the default app, which nobody has created, is 0 rather than the
// year 1.
func TestFromAppCreatedAt(t *testing.T) {
	made := time.UnixMilli(1_700_000_000_123)
	for want, app := range map[int64]bourse.App{
		0:                {Name: bourse.DefaultAppName},
		made.UnixMilli(): {Name: "shop", CreatedAt: made},
	} {
		if got := machinesapi.FromApp(app, 1, 0).CreatedAt; got != want {
			t.Errorf("app %s: got creation time %d, want %d", app.Name, got, want)
		}
	}
}

package machinesapi_test

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// The default app exists without having been created. Its time is 0, not that of the year 1.
func TestFromAppCreatedAt(t *testing.T) {
	made := time.UnixMilli(1_700_000_000_123)
	for want, app := range map[int64]bourse.App{
		0:                {Name: bourse.DefaultAppName},
		made.UnixMilli(): {Name: "shop", CreatedAt: made},
	} {
		if got := machinesapi.FromApp(app, 1, 0).CreatedAt; got != want {
			t.Errorf("app %s: %d, want %d", app.Name, got, want)
		}
	}
}

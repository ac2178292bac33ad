package worker

import (
	"net/url"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// ownership reports whether a record belongs to somebody, by the app that it
// says it is of and when it was made; see [bourse.App.Owns].
type ownership func(app bourse.AppName, id string, made time.Time) bool

// ownerOf gives the ownership of the app that another record here says it is
// of. Of records without an id, which are of a former release, the names decide.
func ownerOf(app bourse.AppName, id string) ownership {
	return func(otherApp bourse.AppName, otherID string, _ time.Time) bool {
		return app == otherApp && (id == otherID || id == "" || otherID == "")
	}
}

// foreign reports whether a record is of another app's order. Brokers make an
// order's id of its app's, so none of them asks for such a one.
func foreign(rec *store.OrderRecord, app *bourse.App) bool {
	if t := rec.Task; t != nil {
		return !app.Owns(t.App, t.AppID, rec.At)
	}
	return rec.Decision.App != "" && !rec.Decision.OwnedBy(app)
}

// queryApp reads which app's records a query is for: of all for "", of every
// app that has or had the name for nil.
func queryApp(q url.Values) (bourse.AppName, *bourse.App) {
	app := bourse.App{Name: bourse.AppName(q.Get("app")), ID: q.Get("app_id")}
	if app.Name == "" || app.ID == "" {
		return app.Name, nil
	}
	return app.Name, &app
}

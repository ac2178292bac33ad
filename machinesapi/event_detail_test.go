package machinesapi_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestFromEventConvertsEveryField checks that FromEvent converts all fields of an exit or a pull. It changes one field
// at a time, and the result must change as well.
func TestFromEventConvertsEveryField(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, detail := range map[string]func() (*bourse.Event, reflect.Value){
		"exit": func() (*bourse.Event, reflect.Value) {
			x := &bourse.ExitEvent{Exit: bourse.Exit{Code: 3, At: at}}
			return &bourse.Event{Type: bourse.EventExit, Exit: x}, reflect.ValueOf(x).Elem()
		},
		"exit itself": func() (*bourse.Event, reflect.Value) {
			x := &bourse.ExitEvent{Exit: bourse.Exit{Code: 3, At: at}}
			return &bourse.Event{Type: bourse.EventExit, Exit: x}, reflect.ValueOf(&x.Exit).Elem()
		},
		"pull": func() (*bourse.Event, reflect.Value) {
			p := &bourse.PullEvent{}
			return &bourse.Event{Type: bourse.EventPull, Pull: p}, reflect.ValueOf(p).Elem()
		},
	} {
		e, v := detail()
		plain := machinesapi.FromEvent(e)
		for i := range v.NumField() {
			e, v := detail()
			switch f := v.Field(i); f.Kind() {
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(7 * time.Millisecond))
			case reflect.String:
				f.SetString("x")
			case reflect.Struct:
				if f.Type() != reflect.TypeFor[time.Time]() {
					continue // another case tests the fields of this struct
				}
				f.Set(reflect.ValueOf(at.Add(time.Hour)))
			default:
				t.Fatalf("%s: a field of kind %s", name, f.Kind())
			}
			if cmp.Equal(plain, machinesapi.FromEvent(e)) {
				t.Errorf("%s: %s is ignored", name, v.Type().Field(i).Name)
			}
		}
	}
}

// TestFromEventLimitsTokenName checks that the token's name in an event is truncated, because it comes from the worker.
func TestFromEventLimitsTokenName(t *testing.T) {
	for by, want := range map[string]string{"": "", "ci": "ci", strings.Repeat("ä", 100): strings.Repeat("ä", 32), strings.Repeat("a", 63) + "ä": strings.Repeat("a", 63)} {
		got := machinesapi.FromEvent(&bourse.Event{Type: bourse.EventStop, Source: bourse.SourceUser, By: by})
		if got.Source != "user" || (got.Added == nil) != (want == "") || got.Added != nil && got.Added.By != want {
			t.Errorf("%q is converted to %+v", by, got.Added)
		}
	}
}

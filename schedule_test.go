package bourse_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// Starts of a schedule are a period apart, from a period after the machine was
// made, whenever it is asked for them.
func TestScheduleNext(t *testing.T) {
	periods := map[bourse.Schedule][2]time.Duration{
		bourse.Hourly: {time.Hour, time.Hour}, bourse.Daily: {24 * time.Hour, 24 * time.Hour},
		bourse.Weekly: {168 * time.Hour, 168 * time.Hour}, bourse.Monthly: {28 * 24 * time.Hour, 31 * 24 * time.Hour},
	}
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.SampledFrom([]bourse.Schedule{bourse.Hourly, bourse.Daily, bourse.Weekly, bourse.Monthly}).Draw(t, "every")
		created := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "created"), 5)
		after := created.Add(time.Duration(rapid.Int64Range(-1e15, 1e18).Draw(t, "after")))
		id := bourse.MachineID(rapid.StringMatching("[0-9a-f]{14}").Draw(t, "id"))
		at := every.Next(created, id, after)
		first := every.Next(created, id, created)
		if !at.After(after) || at.Before(first) || first.Sub(created) < periods[every][0] || first.Sub(created) > periods[every][1]+5*time.Minute {
			t.Errorf("%s of %s after %s is %s, the first is %s", every, created, after, at, first)
		}
		if again := every.Next(created, id, at.Add(-1)); !again.Equal(at) {
			t.Errorf("just before %s the next is %s", at, again)
		}
		gap := every.Next(created, id, at).Sub(at)
		if gap < periods[every][0]-3*24*time.Hour*time.Duration(len(every)/7) || gap > periods[every][1] {
			t.Errorf("%s: %s lies between two starts", every, gap)
		}
	})
}

func TestMonthlyOnTheLastDay(t *testing.T) {
	created := time.Date(2027, time.January, 31, 12, 0, 0, 0, time.UTC)
	at := created
	for _, want := range []string{"02-28", "03-31", "04-30", "05-31"} {
		if at = bourse.Monthly.Next(created, "148e21ea1d5389", at); at.Format("01-02") != want {
			t.Errorf("got %s, want %s", at, want)
		}
	}
}

func TestScheduleOfAConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		`""`: true, `null`: true, `"hourly"`: true, `"monthly"`: true, `"yearly"`: false, `"Hourly"`: false, `7`: false, `["daily"]`: false,
	} {
		if err := normalized(`"schedule":` + text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestStandbysOfAConfig(t *testing.T) {
	for text, ok := range map[string]bool{
		`[]`: true, `null`: true, `["148e21ea1d5301"]`: true, `"148e21ea1d5301"`: false, `[1]`: false, `["../x"]`: false,
		`["148e21ea1d5301"` + strings.Repeat(`,"148e21ea1d5301"`, bourse.MaxStandbys) + `]`: false,
	} {
		if err := normalized(`"standbys":` + text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// normalized decodes and normalizes a config with a member.
func normalized(member string) error {
	var c bourse.Config
	if err := json.Unmarshal([]byte(`{"image":"nginx",`+member+`}`), &c); err != nil {
		return err
	}
	return c.Normalize()
}

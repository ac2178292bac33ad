package broker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const reservePath = "/v1/reservations"

func (s *setup) reserve(t testing.TB, body string, header ...string) machinesapi.Reservation {
	t.Helper()
	rec := s.call(t, "POST", reservePath, body, header...)
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	return decodeBody[machinesapi.Reservation](t, rec.Body.Bytes())
}

// TestReservationsAreStoredOnWorkers checks that a broker that has not seen a reservation can show, extend and release
// it, because the reservation's ID identifies the workers.
func TestReservationsAreStoredOnWorkers(t *testing.T) {
	s := start(t)
	began := time.Now()
	got := s.reserve(t, `{"orders":[{"region":"gru","config":{"guest":{"memory_mb":512}},"count":2},{"region":"mad"}],"ttl_seconds":90}`)
	if want := "-aaaaaa.bbbbbb.cccccc"; !strings.HasSuffix(string(got.ID), want) || got.ID.Validate() != nil {
		t.Errorf("id %s, want suffix %s", got.ID, want)
	}
	if left := got.ExpiresAt.Sub(began); left < 89*time.Second || left > 95*time.Second {
		t.Errorf("the reservation expires in %s", left)
	}
	var who []string
	for i, h := range got.Holds {
		who = append(who, fmt.Sprintf("%d %s %s %s %d", h.Order, h.App, h.Worker, h.Region, h.Takes.Of("memory")))
		if h.OrderID != got.ID.Key().Order(i) || len(h.Remaining) == 0 {
			t.Errorf("hold %d: %+v", i, h)
		}
	}
	if diff := cmp.Diff([]string{"0 default w1 gru 512", "0 default w2 gru 512", "1 default w3 mad 256"}, who); diff != "" {
		t.Errorf("holds (-want +got):\n%s", diff)
	}

	api := startOn(t, s.cluster).client(t) // a client of another broker
	shown, err := api.Reservations().Get(t.Context(), got.ID)
	if diff := cmp.Diff(got, shown); err != nil || diff != "" {
		t.Errorf("shown: %v (-created +shown):\n%s", err, diff)
	}
	longer, err := api.Reservations().Extend(t.Context(), got.ID, machinesapi.ExtendReservation{TTLSeconds: new(int64(600))})
	if err != nil || longer.ExpiresAt.Sub(began) < 590*time.Second || len(longer.Holds) != 3 {
		t.Errorf("extended: %+v, %v", longer, err)
	}
	for range 2 {
		if err := api.Reservations().Release(t.Context(), got.ID); err != nil {
			t.Errorf("released: %v", err)
		}
	}
	if _, err := api.Reservations().Get(t.Context(), got.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("shown after the release: %v", err)
	}
}

// TestReservationWithAnExpiredHold checks that an expired hold is shown as gone, and that the reservation can then no
// longer be extended.
func TestReservationWithAnExpiredHold(t *testing.T) {
	s := start(t)
	api := s.client(t)
	made := s.reserve(t, `{"orders":[{"region":"gru","count":2}]}`)
	delete(s.workers["w2"].holds, made.ID.Key())
	shown, err := api.Reservations().Get(t.Context(), made.ID)
	if err != nil || len(shown.Holds) != 1 || len(shown.LostWorkers) != 1 || shown.LostWorkers[0] != "w2" {
		t.Errorf("shown %+v, %v; want w2 gone", shown, err)
	}
	_, err = api.Reservations().Extend(t.Context(), made.ID, machinesapi.ExtendReservation{TTLSeconds: new(int64(600))})
	if bourse.CodeOf(err) != bourse.CodeConflict || !strings.Contains(bourse.MessageOf(err), "w2") {
		t.Errorf("extended: %v, want a conflict that mentions w2", err)
	}
	if n := s.workers["w1"].called("reservation/extend"); n != 0 {
		t.Errorf("w1 was asked to extend %d times", n)
	}
	s.workers["w1"].silence(errDown)
	if _, err = api.Reservations().Extend(t.Context(), made.ID, machinesapi.ExtendReservation{TTLSeconds: new(int64(600))}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("extended with w1 away: %v", err)
	}
	if _, err = api.Reservations().Get(t.Context(), made.ID); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("shown with w1 away: %v", err)
	}
	if err := api.Reservations().Release(t.Context(), made.ID); bourse.CodeOf(err) != bourse.CodeTimeout || !strings.Contains(bourse.MessageOf(err), "w1") {
		t.Errorf("released with w1 away: %v, want an error that mentions w1", err)
	}
	s.workers["w1"].silence(nil)
	if err := api.Reservations().Release(t.Context(), made.ID); err != nil {
		t.Errorf("released with w1 back: %v", err)
	}
}

// TestHoldExpiresDuringExtend checks that the error mentions a hold that expires between the check and the extension.
func TestHoldExpiresDuringExtend(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bourse.Code
	}{
		"it ends":      {bourse.Errorf(bourse.CodeNotFound, "over"), bourse.CodeConflict},
		"lost answers": {errLost, bourse.CodeTimeout},
	} {
		s := start(t)
		made := s.reserve(t, `{"orders":[{"region":"gru","count":2}]}`)
		s.workers["w2"].set(func(call string) error {
			if call == "reservation/extend" {
				return c.err
			}
			return nil
		})
		_, err := s.client(t).Reservations().Extend(t.Context(), made.ID, machinesapi.ExtendReservation{TTLSeconds: new(int64(600))})
		if bourse.CodeOf(err) != c.want || !strings.Contains(bourse.MessageOf(err), "w2") || !strings.Contains(bourse.MessageOf(err), "the others were extended") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReserveWithAChosenID checks that a reservation's ID contains the ID that the client has
// chosen in the body or the header, and that repeating the request returns the same reservation.
func TestReserveWithAChosenID(t *testing.T) {
	app := bourse.DefaultApp(bourse.App{})
	id := string(bourse.ReservationKey("01J00000000000000000000000").In(app.ID))
	s := start(t)
	first := s.reserve(t, `{"id":"`+id+`","orders":[{"count":3}]}`)
	again := s.reserve(t, `{"orders":[{"count":3}]}`, "Bourse-Order-Id", strings.ToLower(id))
	if first.ID != again.ID || string(first.ID.Key()) != id {
		t.Errorf("first %s, then %s", first.ID, again.ID)
	}
	for _, o := range s.orders {
		if !o.HasChosenID || string(o.Hold.Reservation) != id {
			t.Errorf("placed %+v", o)
		}
	}
	if a, b := s.orders[0], s.orders[3]; a.ID != b.ID || a.ID == s.orders[1].ID {
		t.Errorf("orders %s and %s: a repeated request must have the same distinct orders", a.ID, b.ID)
	}
}

// TestReserveRefused checks the reply if there is no capacity. It must contain all refusals, identify the refused
// order, and tell where to read the decision.
func TestReserveRefused(t *testing.T) {
	s := start(t)
	s.workers["w3"].full = true
	rec := s.call(t, "POST", reservePath, `{"orders":[{"region":"gru"},{"region":"mad"}]}`)
	got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
	if rec.Code != http.StatusUnprocessableEntity || got.Code != bourse.CodeInsufficient || len(got.Refusals) != 1 || got.Refusals[0].Worker != "w3" {
		t.Fatalf("status %d, %+v", rec.Code, got)
	}
	if got.OrderID != s.orders[1].ID || !strings.Contains(got.Error, "orders[1]") || !strings.HasPrefix(got.Error, machinesapi.NoCapacityText) {
		t.Errorf("body %+v", got)
	}
}

// TestCreateFromAnEndedReservation checks the reply to a request to create a machine from a
// reservation that has ended.
func TestCreateFromAnEndedReservation(t *testing.T) {
	s := start(t)
	made := s.reserve(t, `{"orders":[{}]}`)
	body := `{"config":` + hostConfig + `,"reservation":"` + string(made.ID) + `"}`
	if rec := s.call(t, "POST", createPath, body); rec.Code != http.StatusOK || s.lastOrder(t).Reservation != made.ID {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	s.placeErr = bourse.Errorf(bourse.CodeFailedPrecondition, "reservation %s is gone", made.ID)
	rec := s.call(t, "POST", createPath, body)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusPreconditionFailed || !strings.Contains(got.Error, "is gone") {
		t.Errorf("status %d: %+v", rec.Code, got)
	}
	for _, more := range []string{`,"skip_launch":true`, `,"race":2`} {
		if rec := s.call(t, "POST", createPath, strings.TrimSuffix(body, "}")+more+"}"); rec.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", more, rec.Code)
		}
	}
}

// TestReservationsBelongToTheirApps checks that a token for one app can reserve capacity for that
// app, and sees no reservations of other apps.
func TestReservationsBelongToTheirApps(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "personal")
	as := func(token, method, path, body string) int {
		t.Helper()
		return s.call(t, method, path, body, "Authorization", "Bearer "+token).Code
	}
	if got := as("shop", "POST", reservePath, `{"orders":[{"app":"shop"},{}]}`); got != http.StatusForbidden {
		t.Errorf("for another's app: status %d", got)
	}
	ours := s.reserve(t, `{"orders":[{"app":"shop"}]}`, "Authorization", "Bearer shop")
	theirs := s.reserve(t, `{"orders":[{}]}`, "Authorization", "Bearer root")
	for id, want := range map[bourse.ReservationID]int{ours.ID: http.StatusOK, theirs.ID: http.StatusNotFound} {
		one := reservePath + "/" + string(id)
		for method, body := range map[string]string{"GET": "", "PATCH": `{"ttl_seconds":5}`} {
			if got := as("shop", method, one, body); got != want {
				t.Errorf("%s: status %d, want %d", method, got, want)
			}
		}
		if got := as("shop", "DELETE", one, ""); got != want {
			t.Errorf("DELETE: status %d, want %d", got, want)
		}
	}
	if len(s.workers["w1"].holds[theirs.ID.Key()]) != 1 {
		t.Error("another app's reservation was released")
	}
	if got := s.call(t, "GET", reservePath+"/"+string(ours.ID), "").Code; got != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", got)
	}
}

// TestHostileReservations checks that invalid input causes an error with the right code and a clear message, and
// reserves nothing.
func TestHostileReservations(t *testing.T) {
	one := func(order string) string { return `{"orders":[{"region":"gru"},` + order + `]}` }
	require := func(r string) string { return one(`{"config":{"requirements":` + r + `}}`) }
	long := strings.Repeat("x", 10<<10)
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"empty":                     {``, 400},
		"not JSON":                  {`hello`, 400},
		"two values":                {`{"orders":[{}]} {}`, 400},
		"null":                      {`null`, 400},
		"an array":                  {`[]`, 400},
		"nothing":                   {`{}`, 400},
		"no orders":                 {`{"orders":[]}`, 400},
		"null orders":               {`{"orders":null}`, 400},
		"orders a number":           {`{"orders":1}`, 400},
		"too many orders":           {`{"orders":[` + strings.TrimSuffix(strings.Repeat(`{},`, 65), ",") + `]}`, 400},
		"an order of wrong type":    {one(`"x"`), 400},
		"nested deep":               {one(strings.Repeat(`{"config":`, 100_000)), 400},
		"count zero":                {one(`{"count":0}`), 400},
		"count negative":            {one(`{"count":-1}`), 400},
		"count fraction":            {one(`{"count":1.5}`), 400},
		"count enormous":            {one(`{"count":9223372036854775807}`), 400},
		"count overflow":            {one(`{"count":9223372036854775808}`), 400},
		"count 1e999":               {one(`{"count":1e999}`), 400},
		"count text":                {one(`{"count":"2"}`), 400},
		"counts too large in total": {`{"orders":[{"count":64},{"count":1}]}`, 400},
		"ttl zero":                  {`{"orders":[{}],"ttl_seconds":0}`, 400},
		"ttl negative":              {`{"orders":[{}],"ttl_seconds":-60}`, 400},
		"ttl fraction":              {`{"orders":[{}],"ttl_seconds":0.5}`, 400},
		"ttl too long":              {`{"orders":[{}],"ttl_seconds":3601}`, 400},
		"ttl enormous":              {`{"orders":[{}],"ttl_seconds":9223372036854775807}`, 400},
		"ttl text":                  {`{"orders":[{}],"ttl_seconds":"1m"}`, 400},
		"deadline negative":         {`{"orders":[{}],"deadline":"-1s"}`, 400},
		"deadline enormous":         {`{"orders":[{}],"deadline":"9000h"}`, 400},
		"id nonsense":               {`{"orders":[{}],"id":"../../etc"}`, 400},
		"id long":                   {`{"orders":[{}],"id":"` + long + `"}`, 400},
		"app bad":                   {one(`{"app":"a b"}`), 400},
		"app unknown":               {one(`{"app":"nobodys"}`), 404},
		"region unknown":            {one(`{"region":"xyz"}`), 400},
		"region long":               {one(`{"region":"` + long + `"}`), 400},
		"cpus negative":             {one(`{"config":{"guest":{"cpus":-1}}}`), 400},
		"cpus enormous":             {one(`{"config":{"guest":{"cpus":9223372036854775807}}}`), 400},
		"cpus fraction":             {one(`{"config":{"guest":{"cpus":0.5}}}`), 400},
		"memory negative":           {one(`{"config":{"guest":{"memory_mb":-1}}}`), 400},
		"gpus negative":             {one(`{"config":{"guest":{"gpus":-1,"gpu_kind":"a10"}}}`), 400},
		"slots zero":                {require(`{"slots":0}`), 400},
		"slots negative":            {require(`{"slots":-5}`), 400},
		"slots fraction":            {require(`{"slots":0.5}`), 400},
		"slots enormous":            {require(`{"slots":9223372036854775807}`), 400},
		"slots 1e400":               {require(`{"slots":1e400}`), 400},
		"slots null":                {require(`{"slots":null}`), 400},
		"slots a list":              {require(`{"slots":[1]}`), 400},
		"requirement bad name":      {require(`{"a/b":1}`), 400},
		"requirement no name":       {require(`{"":1}`), 400},
		"requirement with a *":      {require(`{"slots.*":1}`), 400},
		"requirement long label":    {require(`{"zone":"` + long + `"}`), 400},
		"a volume to mount":         {one(`{"config":{"mounts":[{"volume":"vol_0000000000000000","path":"/data"}]}}`), 400},
		"image with a newline":      {one(`{"config":{"image":"a\nb"}}`), 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			rec := s.call(t, "POST", reservePath, c.body)
			got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
			if rec.Code != c.status || got.Code == "" || got.Error == "" || len(got.Error) > 1024 {
				t.Errorf("status %d, body %+v; want %d", rec.Code, got, c.status)
			}
			if len(s.orders) != 0 {
				t.Errorf("something was reserved: %+v", s.orders[0])
			}
		})
	}
}

func TestHostileReservationPaths(t *testing.T) {
	s := start(t)
	made := s.reserve(t, `{"orders":[{}]}`)
	good := reservePath + "/" + string(made.ID)
	key := string(made.ID.Key())
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", reservePath + "/x", "", 400},
		{"GET", reservePath + "/" + key, "", 400},
		{"GET", reservePath + "/" + key + "-", "", 400},
		{"GET", reservePath + "/" + key + "-ffffff", "", 404},
		{"GET", reservePath + "/" + key + "-aaaaaa.aaaaaa", "", 400},
		{"GET", reservePath + "/" + key + "-" + strings.Repeat("aaaaaa.", 10_000), "", 400},
		{"GET", reservePath + "/01J00000000000000000000000-aaaaaa", "", 404},
		{"GET", reservePath + "/..%2f..%2fetc-aaaaaa", "", 400},
		{"DELETE", reservePath + "/x", "", 400},
		{"DELETE", reservePath + "/01J00000000000000000000000-ffffff", "", 200}, // this reservation has no holds
		{"PATCH", good, ``, 400},
		{"PATCH", good, `{}`, 400},
		{"PATCH", good, `{"ttl_seconds":null}`, 400},
		{"PATCH", good, `{"ttl_seconds":0}`, 400},
		{"PATCH", good, `{"ttl_seconds":-1}`, 400},
		{"PATCH", good, `{"ttl_seconds":1.5}`, 400},
		{"PATCH", good, `{"ttl_seconds":1e99}`, 400},
		{"PATCH", good, `{"ttl_seconds":3601}`, 400},
		{"PATCH", reservePath + "/01J00000000000000000000000-aaaaaa", `{"ttl_seconds":5}`, 404},
		{"PUT", good, `{}`, 405},
		{"DELETE", reservePath, "", 405},
	} {
		rec := s.call(t, c.method, c.path, c.body)
		if rec.Code != c.want {
			t.Errorf("%s %.90s %s: status %d, want %d: %s", c.method, c.path, c.body, rec.Code, c.want, rec.Body)
		}
	}
	if n := s.workers["w1"].called("reservation/extend"); n != 0 {
		t.Errorf("%d requests reached the worker", n)
	}
}

func FuzzReserve(f *testing.F) {
	fuzzBody(f, "POST", reservePath, func(t *testing.T, s *setup) {
		for i := range s.orders {
			if err := s.orders[i].Validate(); err != nil || len(s.orders) > bourse.MaxReservedOrders {
				t.Fatalf("one of %d orders is invalid: %v", len(s.orders), err)
			}
		}
	}, `{"orders":[{"region":"gru","config":{"guest":{"memory_mb":512},"requirements":{"slots":1,"arch":"arm64"}},"count":2},{}],"ttl_seconds":90}`,
		`{"id":"01J00000000000000000000000","orders":[{"count":-1}]}`, `{"orders":[{"config":{"image":"nginx","rootfs":{"size_gb":1}}}],"deadline":"1s"}`)
}

// TestHoldsForOtherWorkersAreIgnored checks that holds are ignored if a worker reports them for
// another reservation or another worker.
func TestHoldsForOtherWorkersAreIgnored(t *testing.T) {
	for name, lie := range map[string]func(*bourse.Hold){
		"another's tag":  func(h *bourse.Hold) { h.Tag = 0xbbbbbb },
		"another worker": func(h *bourse.Hold) { h.Worker = "w2" },
		"another key":    func(h *bourse.Hold) { h.Reservation = bourse.NewReservationKey() },
		"no key":         func(h *bourse.Hold) { h.Reservation = "../.." },
	} {
		s := start(t)
		api := s.client(t)
		made := s.reserve(t, `{"orders":[{"region":"gru","count":2}]}`)
		lie(&s.workers["w1"].holds[made.ID.Key()][0])
		shown, err := api.Reservations().Get(t.Context(), made.ID)
		if err != nil || len(shown.Holds) != 1 || shown.Holds[0].Worker != "w2" || !slices.Equal(shown.LostWorkers, []string{"w1"}) {
			t.Errorf("%s: shown %+v, %v; want only w2's holds", name, shown, err)
		}
	}
}

// TestForeignHoldDoesNotHideTheReservation checks that a worker that reports another tenant's hold does not hide a
// reservation's other holds from their owner. The other holds can be shown, listed and released, and the worker in
// question is no longer asked.
func TestForeignHoldDoesNotHideTheReservation(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	zoo := s.app(t, "zoo", "zoological")
	made := s.reserve(t, `{"orders":[{"app":"shop","region":"gru","count":2}]}`, "Authorization", "Bearer shop")
	key := made.ID.Key()
	lie := &s.workers["w1"].holds[key][0]
	lie.App, lie.AppID = zoo.Name, zoo.ID
	call := func(method, path, body string) *httptest.ResponseRecorder {
		return s.call(t, method, path, body, "Authorization", "Bearer shop")
	}
	one := reservePath + "/" + string(made.ID)
	shown := decodeBody[machinesapi.Reservation](t, call("GET", one, "").Body.Bytes())
	if len(shown.Holds) != 1 || shown.Holds[0].Worker != "w2" || !slices.Equal(shown.LostWorkers, []string{"w1"}) {
		t.Errorf("shown %+v, want only w2's holds", shown)
	}
	list := decodeBody[[]machinesapi.Reservation](t, call("GET", reservePath, "").Body.Bytes())
	if len(list) != 1 || list[0].ID.Key() != key || len(list[0].Holds) != 1 || list[0].Holds[0].Worker != "w2" {
		t.Errorf("listed %+v, want only w2's holds", list)
	}
	if rec := call("PATCH", one, `{"ttl_seconds":5}`); rec.Code != http.StatusConflict || !strings.Contains(rec.Body.String(), "w1") {
		t.Errorf("extended: status %d, %s", rec.Code, rec.Body)
	}
	if rec := call("DELETE", one, ""); rec.Code != http.StatusOK {
		t.Errorf("released: status %d, %s", rec.Code, rec.Body)
	}
	if n := len(s.workers["w2"].holds[key]); n != 0 {
		t.Errorf("w2 still has %d holds", n)
	}
	if n := len(s.workers["w1"].holds[key]); n != 1 {
		t.Errorf("w1, whose hold is another tenant's, has %d holds", n)
	}
}

// TestReservationListContainsOnlyOwnOnes checks that a list contains only holds for the caller's apps, and names the
// workers that do not answer. Holds that a worker reports on behalf of another worker are ignored.
func TestReservationListContainsOnlyOwnOnes(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	zoo := s.app(t, "zoo", "zoological")
	mine := s.reserve(t, `{"orders":[{"app":"shop","region":"gru","count":2}]}`, "Authorization", "Bearer root")
	both := s.reserve(t, `{"orders":[{"app":"shop","region":"gru"},{"app":"zoo","region":"mad"}]}`, "Authorization", "Bearer root")
	lie := bourse.NewReservationKey()
	s.workers["w1"].holds[lie] = []bourse.Hold{{Order: lie.Order(0), Reservation: lie, App: "zoo", AppID: zoo.ID, Worker: "w2", Tag: 0xbbbbbb}}
	list := func(token string) (ids []bourse.ReservationID, unreachable string) {
		rec := s.call(t, "GET", reservePath, "", "Authorization", "Bearer "+token)
		for _, r := range decodeBody[[]machinesapi.Reservation](t, rec.Body.Bytes()) {
			ids = append(ids, r.ID)
		}
		return ids, rec.Header().Get(machinesapi.HeaderUnreachable)
	}
	part := both.Holds[0].ID // the hold for app shop
	for token, want := range map[string][]bourse.ReservationID{"root": {mine.ID, both.ID}, "acme": {mine.ID, part}, "shop": {mine.ID, part}} {
		got, _ := list(token)
		slices.Sort(got)
		slices.Sort(want)
		if !cmp.Equal(got, want) {
			t.Errorf("token %s sees %v, want %v", token, got, want)
		}
	}
	s.workers["w3"].silence(errDown)
	if _, silent := list("root"); silent != "w3" {
		t.Errorf("with w3 down: unresponsive workers %q", silent)
	}
	if rec := s.call(t, "GET", reservePath, ""); rec.Code != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", rec.Code)
	}
}

package market

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// refusalCounts counts an order's refusals, including those beyond the limit on recorded refusals.
type refusalCounts struct {
	kinds     []refusalKind
	nameTaken *bourse.Refusal // the first refusal that says that the app already has a machine with the order's name
	end       *bourse.Refusal // the first refusal of a claim whose reason applies to all other workers as well
}

// refusalKind summarizes the refusals that have the same reason and concern the same resource or label.
type refusalKind struct {
	reason  bourse.RefusalReason
	subject string         // the resource or label; "" if there is none
	count   int            // number of refusals
	best    bourse.Refusal // the refusal with the most free capacity if the kind concerns a resource; otherwise the first refusal
}

// maxKinds is the maximum number of kinds in a refusalCounts. It limits memory use, regardless of
// which refusals workers send.
const maxKinds = 32

func (t *refusalCounts) add(r bourse.Refusal) {
	if r.Reason == bourse.RefusedName && t.nameTaken == nil {
		t.nameTaken = &r
	}
	for _, short := range r.Shortages() {
		t.count(short)
	}
}

func (t *refusalCounts) count(r bourse.Refusal) {
	i := slices.IndexFunc(t.kinds, func(k refusalKind) bool { return k.reason == r.Reason && k.subject == r.Resource })
	switch {
	case i >= 0:
		k := &t.kinds[i]
		k.count++
		if r.Reason == bourse.RefusedResource && r.Free > k.best.Free {
			k.best = r
		}
	case len(t.kinds) < maxKinds:
		t.kinds = append(t.kinds, refusalKind{r.Reason, r.Resource, 1, r})
	}
}

// claimed adds the refusal of a claim. A worker checks a claim more thoroughly than a request for a quote. If it
// reports that the image or its program does not exist, all other workers would report the same.
func (t *refusalCounts) claimed(r bourse.Refusal, order *bourse.Order) {
	t.add(r)
	if t.end == nil && (r.Reason == bourse.RefusedNoImage || r.Reason == bourse.RefusedProgram && order.Config.ImageKind() == bourse.RegistryImage) {
		t.end = &r
	}
}

// final returns an error if one of the refusals applies to all workers, and nil otherwise. For
// example, if the machine's name is taken, all workers have to refuse the order, because names are
// unique within an app.
func (t *refusalCounts) final(order *bourse.Order) error {
	switch {
	case t.nameTaken != nil:
		return bourse.Errorf(bourse.CodeAlreadyExists, "app %s already has a machine named %s, on worker %s", order.App.Name, bourse.Quoted(order.Name), t.nameTaken.Worker)
	case t.end != nil && t.end.Reason == bourse.RefusedNoImage:
		return bourse.Errorf(bourse.CodeNotFound, "%s (%s)", cut(t.end.Detail, maxDetail), t.end.Worker)
	case t.end != nil:
		return bourse.Errorf(bourse.CodeInvalid, "%s (%s)", cut(t.end.Detail, maxDetail), t.end.Worker)
	}
	return nil
}

// err returns the error for an order that no worker has filled.
func (t *refusalCounts) err(order *bourse.Order, rounds []bourse.Round) error {
	const insufficient = "insufficient resources available to fulfill request: "
	known := 0
	for i := range rounds {
		known += rounds[i].Candidates
	}
	if known == 0 && order.Pinned() != 0 {
		return bourse.Errorf(bourse.CodeInsufficient, insufficient+"the worker of volume %s cannot be reached or is not in %s",
			order.Config.Mounts[0].Volume, regions(rounds))
	}
	if known == 0 && order.Reservation != "" {
		return bourse.Errorf(bourse.CodeInsufficient, insufficient+"no worker of reservation %s can be reached in %s",
			order.Reservation, regions(rounds))
	}
	if known == 0 {
		return bourse.Errorf(bourse.CodeInsufficient, insufficient+"no worker accepts orders in %s", regions(rounds))
	}
	kinds := t.sorted()
	if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k refusalKind) bool { return k.reason != bourse.RefusedReservation }) {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "reservation %s no longer exists%s", order.Reservation, t.summary(rounds))
	}
	switch {
	case !t.anyAnswer():
		return bourse.Errorf(bourse.CodeUnavailable, "no worker answered%s", t.summary(rounds))
	case slices.ContainsFunc(kinds, func(k refusalKind) bool { return k.unanswered() }):
		// A worker that did not answer may have capacity, so the code is not insufficient_capacity.
		return bourse.Errorf(bourse.CodeUnavailable, "no worker that answered can fulfill the request, and not all answered%s", t.summary(rounds))
	case kinds[0].reason == bourse.RefusedRegistry:
		return bourse.Errorf(bourse.CodeUnavailable, "%s%s", cut(kinds[0].best.Detail, maxDetail), t.summaryExcept(kinds[0], rounds))
	case kinds[0].reason == bourse.RefusedProgram && len(kinds) == 1:
		return bourse.Errorf(bourse.CodeInvalid, "%s%s", cut(kinds[0].best.Detail, maxDetail), t.summaryExcept(kinds[0], rounds))
	case kinds[0].reason == bourse.RefusedResource:
		// Clients of the Machines API search for this phrase.
		return bourse.Errorf(bourse.CodeInsufficient, insufficient+"could not reserve resource for %s: insufficient %s available to fulfill request%s",
			kindName(order), resourceName(kinds[0].subject), t.summary(rounds))
	}
	return bourse.Errorf(bourse.CodeInsufficient, "no worker can fulfill the request%s", t.summary(rounds))
}

func kindName(order *bourse.Order) string {
	if order.Kind() == bourse.KindHold { // a hold reserves capacity for a machine
		return string(bourse.KindMachine)
	}
	return string(order.Kind())
}

// anyAnswer reports whether any of the refusals comes from a worker that answered.
func (t *refusalCounts) anyAnswer() bool {
	return slices.ContainsFunc(t.kinds, func(k refusalKind) bool { return !k.unanswered() })
}

// unanswered reports whether the kind describes missing answers.
func (k *refusalKind) unanswered() bool {
	return k.reason == bourse.RefusedNoAnswer || k.reason == bourse.RefusedLost
}

// sorted returns the kinds of refusals, most useful first: problems with a registry, shortages of
// resources, other refusals, and finally missing answers. Within each of these classes, more
// frequent kinds come first. Equally frequent kinds are sorted by resource, in the order in which
// people usually check the resources.
func (t *refusalCounts) sorted() []refusalKind {
	out := slices.Clone(t.kinds)
	slices.SortStableFunc(out, func(a, b refusalKind) int {
		return cmp.Or(
			cmp.Compare(a.class(), b.class()),
			cmp.Compare(b.count, a.count),
			cmp.Compare(familiarity(a.subject), familiarity(b.subject)),
			cmp.Compare(a.subject, b.subject),
		)
	})
	return out
}

// class returns the position of k's class in the order that sorted uses; 0 is the most
// useful class.
func (k *refusalKind) class() int {
	switch {
	case k.reason == bourse.RefusedRegistry: // the worker had capacity and tried to pull the image
		return 0
	case k.reason == bourse.RefusedResource:
		return 1
	case k.unanswered():
		return 3
	}
	return 2
}

func familiarity(resource string) int {
	i := slices.Index([]bourse.Resource{bourse.ResourceMemory, bourse.ResourceCPU, bourse.ResourceDisk}, bourse.Resource(resource))
	if i < 0 {
		return 3
	}
	return i
}

// resourceName returns the name of a resource in the Machines API.
func resourceName(resource string) string {
	switch r := bourse.Resource(resource); {
	case r == bourse.ResourceCPU:
		return "CPUs"
	case strings.HasPrefix(resource, string(bourse.GPUResource(""))):
		return "GPUs"
	case resource == "":
		return "resources"
	}
	return resource
}

// Limits on a message.
const (
	maxShown  = 6   // maximum number of kinds, and of rounds
	maxReason = 160 // maximum length of a worker's message, in bytes
)

// summary describes, in parentheses, which workers were asked and why they refused. If no worker
// was asked, it returns "".
func (t *refusalCounts) summary(rounds []bourse.Round) string { return summary(rounds, t.sorted()) }

// summaryExcept is like summary, but omits one kind, which the message already contains.
func (t *refusalCounts) summaryExcept(omitted refusalKind, rounds []bourse.Round) string {
	return summary(rounds, slices.DeleteFunc(t.sorted(), func(k refusalKind) bool { return k.reason == omitted.reason && k.subject == omitted.subject }))
}

func summary(rounds []bourse.Round, kinds []refusalKind) string {
	var parts []string
	for i := range rounds[:min(len(rounds), maxShown)] {
		r := &rounds[i]
		asked := fmt.Sprintf("%s: %s asked", join(r.Regions), workers(r.Asked))
		switch {
		case r.OldestQuote > 0:
			asked = fmt.Sprintf("%s: %s claimed based on an earlier quote", join(r.Regions), workers(len(r.Claims)))
		case r.Candidates == 0:
			asked = join(r.Regions) + ": no worker there"
		case r.Asked < r.Candidates:
			asked += fmt.Sprintf(" of %d", r.Candidates)
		}
		parts = append(parts, asked)
	}
	parts = more(parts, len(rounds)-maxShown)
	for i := range kinds[:min(len(kinds), maxShown)] {
		parts = append(parts, kinds[i].String())
	}
	parts = more(parts, len(kinds)-maxShown)
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

func more(parts []string, n int) []string {
	if n <= 0 {
		return parts
	}
	return append(parts, fmt.Sprintf("and %d more", n))
}

// String describes the refusals in a few words, and names one of the workers.
func (k *refusalKind) String() string {
	switch k.reason {
	case bourse.RefusedResource:
		r := bourse.Resource(k.subject)
		return fmt.Sprintf("%s: wanted %s, most free %s on %s", k.subject, r.Show(k.best.Wanted), r.Show(k.best.Free), k.best.Worker)
	case bourse.RefusedNoAnswer:
		return fmt.Sprintf("%s did not answer", workers(k.count))
	case bourse.RefusedLost:
		return fmt.Sprintf("the answer to a claim was lost (%s)", workers(k.count))
	default:
		return k.detail()
	}
}

// detail returns the message of one of the workers.
func (k *refusalKind) detail() string {
	s := ""
	switch {
	case k.subject == "":
		s = string(k.reason) + ": "
	case !strings.Contains(k.best.Detail, k.subject):
		s = string(k.reason) + " " + k.subject + ": "
	}
	s += cut(k.best.Detail, maxReason) + " (" + string(k.best.Worker)
	if k.count > 1 {
		s += fmt.Sprintf(" and %d more", k.count-1)
	}
	return s + ")"
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

func regions(rounds []bourse.Round) string {
	var all bourse.Choice
	for i := range rounds {
		all = append(all, rounds[i].Regions...)
	}
	return join(all)
}

func join(choice bourse.Choice) string {
	var b strings.Builder
	for i, r := range choice {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(r))
	}
	return b.String()
}

// cut shortens s to at most n bytes. If it removes text, it appends an ellipsis. The result is
// valid UTF-8.
func cut(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "")
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

package market

import "github.com/bourse-dev/bourse"

// Explain returns the parts of the score that Rank computes for a quote.
func Explain(order *bourse.Order, q *bourse.Quote, curves *Curves, broker string) []bourse.ScorePart {
	scorers := newScorers(order, curves, broker)
	return scorers.of(q.Region).explain(q)
}

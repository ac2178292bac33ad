// Package inventory is what the cluster has: workers, machines, volumes, images,
// apps and cancelled orders, as rows of the view, and as answers to questions. A
// question is a function that reads; view.Ask answers it.
//
// What others write may be wrong or hostile: what does not read as it should is
// as if it were empty, and of two owners of one id the one counts whose tag the
// id carries.
package inventory

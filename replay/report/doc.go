// Package report turns the records of runs into evidence toward the controls of a framework:
// for each control a set of claims, each one sentence with numbers and the very records it
// rests on, and what it cannot show.
//
// What is asked for each control is data: maps/*.yaml name it, in our own words, with the
// queries that make its evidence and its limits. The queries are a closed vocabulary (Queries),
// plain folds over records. A query that finds records to the contrary states them in a claim of
// its own, and one that finds none reports that there are none:
//
//	supports         records show it, and their runs are verified
//	does not support what ought to show it is not there, or is not verified
//	contradicts      records, or a check, show the contrary
//	not applicable   no record of this kind in these runs
//
// A control contradicts if one of its claims does. Else the first query with a result decides:
// maps name the query first that the control is about. A report describes what is evidence and what is not. It never reports that a requirement
// is met: that is the auditor's to judge.
//
// Build reads each run's records twice, one run after the other, and keeps no more of them
// than what it cites. The same input gives the same bytes. The package is safe for concurrent use.
package report

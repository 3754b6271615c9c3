//! Several instances at once on one task, over bad lines: exactly one of them may have the last word.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use tower_mcp::async_task::AppliedInputResponses;
use tower_mcp::protocol::TaskStatus;

use crate::faults::Fault;
use crate::scene::{self, Account, Instance};
use crate::values::{self, as_json};
use crate::{driver, seed};

/// How many instances answer or end a task at the same time.
const INSTANCES: usize = 3;
const ROUNDS: usize = 20;

async fn instances(account: &Account, broker: &crate::harness::Broker) -> Vec<Instance> {
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(account.instance(broker).await);
    }
    instances
}

/// A router starts the handler again for each answer that completes a round, so there must be exactly one.
#[tokio::test(flavor = "multi_thread")]
async fn answers_from_several_instances_resume_a_task_exactly_once() {
    let mut rng = fastrand::Rng::with_seed(seed());
    let broker = scene::broker();
    let account = Account::new(&broker, "answers");
    let instances = instances(&account, &broker).await;
    let (id, _token) = instances[0].store.create_task("tool", json!({}), None, None).await.unwrap();
    let mut lost = 0;
    for round in 0..ROUNDS {
        let keys: Vec<_> = (0..INSTANCES).map(|key| format!("{round}-{key}")).collect();
        let questions = keys.iter().map(|key| (key.clone(), values::question(key))).collect();
        assert!(instances[0].store.require_input(&id, values::requests(&questions), None).await.unwrap());
        // Every instance answers two of the three questions, so that each question is answered twice.
        let answering = instances.iter().enumerate().map(|(number, instance)| {
            instance.proxy.arm(Fault::some(&mut rng));
            let answers = [number, (number + 1) % INSTANCES]
                .map(|key| (keys[key].clone(), values::answer(&format!("of {number}"))));
            let (store, id) = (Arc::clone(&instance.store), id.clone());
            tokio::spawn(
                async move { store.apply_input_responses(&id, values::responses(&answers.into())).await },
            )
        });
        let outcomes: Vec<AppliedInputResponses> = join_all(answering.collect::<Vec<_>>())
            .await
            .into_iter()
            .map(|outcome| outcome.unwrap().unwrap().expect("the task is live"))
            .collect();
        for instance in &instances {
            lost += instance.proxy.disarm().iter().filter(|fault| fault.breaks()).count();
        }
        let resumes = outcomes.iter().filter(|outcome| !outcome.accepted.is_empty() && outcome.is_complete());
        assert_eq!(resumes.count(), 1, "round {round}: {outcomes:#?}");
        let accepted: Vec<_> = outcomes.iter().flat_map(|outcome| outcome.accepted.clone()).collect();
        assert_eq!(
            accepted.len(),
            INSTANCES,
            "round {round}, an answer was taken twice or lost: {outcomes:#?}"
        );
        assert_eq!(accepted.into_iter().collect::<BTreeSet<_>>(), keys.into_iter().collect());
        let task = instances[1].store.get_task(&id).await.unwrap().unwrap();
        assert_eq!(task.status, TaskStatus::Working);
    }
    assert!(lost >= ROUNDS, "only {lost} answers were lost on the way");
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_several_instances_end_has_one_end_and_all_agree_on_it() {
    let mut rng = fastrand::Rng::with_seed(seed());
    let broker = scene::broker();
    let account = Account::new(&broker, "ends");
    let instances = instances(&account, &broker).await;
    for round in 0..ROUNDS {
        let (id, token) = instances[0].store.create_task("tool", json!({}), None, None).await.unwrap();
        for instance in &instances {
            instance.proxy.arm(Fault::some(&mut rng));
        }
        let (result, error) = (values::result(&mut rng), values::error(&mut rng));
        let (completed, failed, cancelled) = tokio::join!(
            instances[0].store.complete_task(&id, result.clone()),
            instances[1].store.fail_task(&id, error.clone()),
            instances[2].store.cancel_task(&id, None),
        );
        let (completed, failed) = (completed.unwrap(), failed.unwrap());
        let seen_by_cancel = cancelled.unwrap().expect("the task is there").status;
        for instance in &instances {
            instance.proxy.disarm();
            let (task, has_result, has_error) = instance.store.get_task_result(&id).await.unwrap().unwrap();
            let context = format!("round {round}: {completed} {failed} {seen_by_cancel:?}, {task:?}");
            assert_eq!(completed, task.status == TaskStatus::Completed, "{context}");
            assert_eq!(failed, task.status == TaskStatus::Failed, "{context}");
            assert_eq!(seen_by_cancel, task.status, "{context}");
            assert_eq!(
                has_result.map(|kept| as_json(&kept)),
                completed.then(|| as_json(&result)),
                "{context}"
            );
            assert_eq!(has_error.map(|kept| as_json(&kept)), failed.then(|| as_json(&error)), "{context}");
        }
        // Whatever the end was, somebody asked the work to stop.
        driver::raised(&token, format!("round {round}")).await;
    }
    broker.assert_no_error_logged();
}

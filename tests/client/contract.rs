//! The contract that tower-mcp publishes for its stores.

use task_broker_client::RemoteTaskStore;
use tower_mcp::testing::store_contracts::{task_store_contract, task_store_optional_contract};

use crate::harness::Auth;
use crate::scene::{broker, service_token, url};

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_holds_without_authentication() {
    let broker = broker(Auth::Off);
    task_store_contract(|| RemoteTaskStore::new(&url(&broker), "").unwrap()).await;
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_optional_contract_holds_without_authentication() {
    let broker = broker(Auth::Off);
    task_store_optional_contract(|| RemoteTaskStore::new(&url(&broker), "").unwrap()).await;
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_holds_for_a_service_account_that_may_name_owners() {
    let broker = broker(Auth::Required);
    task_store_contract(|| RemoteTaskStore::new(&url(&broker), service_token()).unwrap()).await;
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_optional_contract_holds_for_a_service_account_that_may_name_owners() {
    let broker = broker(Auth::Required);
    task_store_optional_contract(|| RemoteTaskStore::new(&url(&broker), service_token()).unwrap()).await;
    broker.assert_no_error_logged();
}

#[tokio::test]
async fn the_contract_holds_on_a_runtime_of_one_thread_and_on_one_store() {
    let broker = broker(Auth::Off);
    let store = RemoteTaskStore::builder(&url(&broker)).connect().await.unwrap();
    task_store_contract(|| store.clone()).await;
    task_store_optional_contract(|| store.clone()).await;
}

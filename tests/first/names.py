"""Names of columns of public data sets that nobody looked at when the word lists were written, and what each column is.

``known``: outsiders are known to know it; ``harmful``: may harm by itself; ``named``: names records or people;
``other``: neither, such as a measurement or a technical column, about which ``init`` asks.
"""

from __future__ import annotations

NAMES: dict[str, dict[str, str]] = {
    "credit in Germany": {
        "known": "purpose employment personal_status residence_since age housing job num_dependents foreign_worker",
        "harmful": "checking_status credit_history credit_amount savings_status existing_credits",
        "other": "duration installment_commitment other_parties other_payment_plans own_telephone class",
    },
    "diabetes in 130 hospitals": {
        "named": "encounter_id patient_nbr",
        "known": "race gender age admission_type_id medical_specialty payer_code",
        "harmful": "diag_1 diag_2 diag_3 A1Cresult max_glu_serum insulin diabetesMed readmitted "
        "discharge_disposition_id",
        "other": "time_in_hospital num_lab_procedures num_procedures change",
    },
    "recidivism": {
        "named": "name first last c_case_number",
        "known": "sex dob age age_cat race",
        "harmful": "juv_fel_count decile_score priors_count c_charge_degree is_recid two_year_recid "
        "c_jail_in is_violent_recid",
        "other": "days_b_screening_arrest start end",
    },
    "intensive care": {
        "named": "SUBJECT_ID HADM_ID ICUSTAY_ID",
        "known": "GENDER DOB INSURANCE LANGUAGE MARITAL_STATUS ETHNICITY ADMISSION_TYPE ADMISSION_LOCATION",
        "harmful": "DOD RELIGION DIAGNOSIS HOSPITAL_EXPIRE_FLAG ICD9_CODE EXPIRE_FLAG",
        "other": "ADMITTIME DISCHTIME LOS FIRST_CAREUNIT",
    },
    "health survey": {
        "named": "SEQNO",
        "known": "_STATE IMONTH IYEAR SEX MARITAL EDUCA EMPLOY1 CHILDREN VETERAN3 NUMADULT",
        "harmful": "GENHLTH PHYSHLTH MENTHLTH SMOKE100 DIABETE3 ASTHMA3 INCOME2 ALCDAY5 PREGNANT DRNK3GE5 HIVTST6",
        "other": "EXERANY2 SLEPTIM1 FRUIT1 SEATBELT",
    },
    "staff": {
        "named": "EmployeeNumber",
        "known": "Age BusinessTravel Department DistanceFromHome Education EducationField Gender JobRole JobLevel "
        "MaritalStatus TotalWorkingYears YearsAtCompany",
        "harmful": "Attrition MonthlyIncome HourlyRate PercentSalaryHike PerformanceRating StockOptionLevel",
        "other": "EnvironmentSatisfaction OverTime StandardHours TrainingTimesLastYear WorkLifeBalance",
    },
    "mortgages": {
        "named": "respondent_id sequence_number",
        "known": "as_of_year property_type_name state_abbr county_name census_tract_number applicant_ethnicity_name "
        "applicant_race_name_1 applicant_sex_name owner_occupancy_name",
        "harmful": "loan_amount_000s applicant_income_000s denial_reason_name_1 action_taken_name",
        "other": "rate_spread lien_status_name edit_status hoepa_status_name",
    },
    "police stops": {
        "named": "raw_row_number officer_id_hash vehicle_registration",
        "known": "date time location county_name district subject_age subject_race subject_sex "
        "vehicle_make vehicle_year",
        "harmful": "arrest_made citation_issued contraband_found contraband_drugs frisk_performed "
        "search_conducted violation",
        "other": "reason_for_stop lat lng",
    },
    "pupils": {
        "known": "school sex age address famsize Pstatus Medu Fedu Mjob Fjob guardian traveltime nursery",
        "harmful": "failures G1 G2 G3 Dalc Walc health romantic absences",
        "other": "studytime schoolsup activities internet famrel freetime goout",
    },
    "ship": {
        "named": "PassengerId Name Ticket",
        "known": "Pclass Sex Age SibSp Parch Cabin Embarked",
        "harmful": "Survived",
        "other": "Fare",
    },
    "heart": {
        "known": "age sex",
        "harmful": "trestbps chol fbs restecg thalach exang target",
        "other": "cp oldpeak slope ca thal",
    },
    "telephone customers": {
        "named": "customerID",
        "known": "gender SeniorCitizen Partner Dependents",
        "harmful": "Churn MonthlyCharges PaymentMethod",
        "other": "PhoneService MultipleLines TechSupport Contract PaperlessBilling",
    },
}  # fmt: skip


def list_names() -> list[tuple[str, str]]:
    """Each name with what it is."""
    return [(name, kind) for one in NAMES.values() for kind, names in one.items() for name in names.split()]
